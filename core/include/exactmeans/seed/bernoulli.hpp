// Bernoulli draws of k-means|| (B. Bahmani et al., Scalable k-means++, VLDB 2012): a round samples
// row i with probability min(1, l w d^2 / potential), independently of all others. A draw is a
// function of key and row number only (splitmix64 of both; G. L. Steele et al., OOPSLA 2014), so
// the sample depends neither on threads nor on blocks.
#pragma once

#include <cstdint>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

class BernoulliDraws {
public:
    explicit BernoulliDraws(std::uint64_t key) : key_(mix(key + golden)) {}

    // Uniform in [0, 1).
    double operator()(Size row) const {
        return double(mix(mix(key_ + golden * std::uint64_t(row)) ^ key_) >> 11) * 0x1p-53;
    }

private:
    static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;

    static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }

    std::uint64_t key_;
};

}  // namespace exactmeans
