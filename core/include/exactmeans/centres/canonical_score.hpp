// The canonical score of one row and one centre, from the master copy of the centre. For the few
// pairs that bounds do not decide: packing a layout of all centres would cost more.
#pragma once

#include <cstdint>
#include <vector>

#include "exactmeans/centres/centres.hpp"
#include "exactmeans/kernels/scores.hpp"

namespace exactmeans {

// Buffers of one thread.
template <class R>
class CanonicalScore {
public:
    // The score of a CSR row and centre j.
    template <class I>
    R operator()(const Centres<R>& centroids, const SparseRow<R, I>& row, Size j) {
        const std::size_t count = std::size_t(row.nonzeros);
        master_.resize(count);
        packed_.resize(count);
        for (std::size_t t = entry_.size(); t < count; ++t) entry_.push_back(std::uint32_t(t));
        centroids.values_at(j, row.index, row.nonzeros, master_.data());
        for (std::size_t t = 0; t < count; ++t)
            packed_[t] = centroids.frame().packed(Size(row.index[t]), R(master_[t]));
        const PackedCsrRow<R> own{entry_.data(), row.value, row.nonzeros};
        R score;
        score_kernels<R>().centre_csr(&own, 1, packed_.data(), centroids.score_offset()[j], &score);
        return score;
    }

    // The score of a dense row, contiguous and minus the shift of the frame, and centre j. The
    // centres must be dense.
    R operator()(const Centres<R>& centroids, const R* row, Size j) {
        const Size d = centroids.d();
        packed_.resize(std::size_t(d));
        const R* const centre = centroids.master(j);
        for (Size f = 0; f < d; ++f)
            packed_[std::size_t(f)] = centroids.frame().packed(f, centre[f]);
        R score;
        score_kernels<R>().centre_dense(&row, 1, packed_.data(), centroids.score_offset()[j], d,
                                        &score);
        return score;
    }

private:
    std::vector<double> master_;
    std::vector<R> packed_;
    std::vector<std::uint32_t> entry_;  // 0, 1, 2, ...: the packed column of entry t is t
};

}  // namespace exactmeans
