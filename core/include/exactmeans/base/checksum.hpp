// A 64-bit checksum of the bytes of an array, at about the speed of reading them. It detects
// whether an array changed. It does not protect against deliberate collisions.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "exactmeans/base/parallel.hpp"

namespace exactmeans {

namespace detail {

// A bijection in each argument, so a change of one word always changes the result. A multiplication
// spreads bits upwards only. The rotation moves the highest bits down, so that the next
// multiplication spreads them too; without it, two changes of sign would cancel.
inline std::uint64_t mix(std::uint64_t sum, std::uint64_t word) {
    return (std::rotl(sum, 29) ^ word) * 0x9E3779B97F4A7C15u;
}

inline std::uint64_t checksum_of(const unsigned char* bytes, std::ptrdiff_t size) {
    constexpr int lanes = 8;  // independent multiplication chains
    std::uint64_t sum[lanes], word[lanes];
    for (int l = 0; l < lanes; ++l) sum[l] = std::uint64_t(l + 1);
    std::ptrdiff_t at = 0;
    for (; at + std::ptrdiff_t(sizeof word) <= size; at += std::ptrdiff_t(sizeof word)) {
        std::memcpy(word, bytes + at, sizeof word);
        for (int l = 0; l < lanes; ++l) sum[l] = mix(sum[l], word[l]);
    }
    std::memset(word, 0, sizeof word);
    if (at < size) std::memcpy(word, bytes + at, std::size_t(size - at));
    std::uint64_t all = std::uint64_t(size);
    for (int l = 0; l < lanes; ++l) all = mix(all, mix(sum[l], word[l]));
    return mix(all, all >> 32);
}

}  // namespace detail

// The result does not depend on the number of threads.
inline std::uint64_t checksum(const unsigned char* bytes, std::ptrdiff_t size,
                              const Threads& threads) {
    // Bytes per task. Part of the definition: another value would give other checksums.
    constexpr std::ptrdiff_t chunk = std::ptrdiff_t(1) << 20;
    if (size <= chunk) return detail::checksum_of(bytes, size);
    std::vector<std::uint64_t> part(std::size_t((size + chunk - 1) / chunk));
    threads.ranges(size, chunk, [&](std::ptrdiff_t begin, std::ptrdiff_t end, int) {
        part[std::size_t(begin / chunk)] = detail::checksum_of(bytes + begin, end - begin);
    });
    std::uint64_t all = std::uint64_t(size);
    for (const std::uint64_t chunk_sum : part) all = detail::mix(all, chunk_sum);
    return detail::mix(all, all >> 32);
}

}  // namespace exactmeans
