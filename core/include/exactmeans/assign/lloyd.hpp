// Lloyd's algorithm (S. P. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28,
// 1982).
//
// Every row is compared with every centre, through the fused kernels: scores stay in registers, and
// no matrix of rows by centres ever exists. It keeps nothing from pass to pass, and it defines the
// labels that all others must give.
#pragma once

#include "exactmeans/assign/assigner.hpp"

namespace exactmeans {

template <class R>
class Lloyd {
public:
    using Real = R;
    static constexpr Traits traits{"lloyd", "every row against every centre", true, true,
                                   "euclidean cosine angular manhattan"};
    static Size bytes_per_row(Size, Size, bool dense) {
        return dense ? 0 : RowSlacks<R>::bytes_per_row;
    }

    Lloyd(Size, Size) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        work.pack_centres(threads);
        if (work.loose()) work.look_at_rows(threads);
    }

    template <class Rows>
    Tally assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        scan.nearest(work, begin, nullptr, end - begin, false);
        Tally tally{0, (end - begin) * work.centroids.k(), 0};
        for (Size i = begin; i < end; ++i) {
            const std::int32_t label = scan.label[std::size_t(i - begin)];
            tally.changed += label != work.labels[i];
            work.labels[i] = label;
        }
        return tally;
    }

    void moved(const Movement&) {}
};

}  // namespace exactmeans
