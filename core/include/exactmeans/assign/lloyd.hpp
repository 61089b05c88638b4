// Lloyd's algorithm (S. P. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28,
// 1982).
//
// Every row is compared with every centre, through the fused kernels: scores stay in registers, and
// no matrix of rows by centres ever exists. It keeps nothing from pass to pass, and it defines the
// labels that all others must give.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/coarse.hpp"

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
        coarse_ = nullptr;
        if constexpr (!is_dense<Rows>) {
            if (worth_a_look(work, threads)) return;
        }
        work.pack_centres(threads);
        if (work.loose()) work.look_at_rows(threads);
    }

    template <class Rows>
    Tally assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        Tally tally{0, (end - begin) * work.centroids.k(), 0};
        const auto take = [&](const std::vector<std::int32_t>& label) {
            for (Size i = begin; i < end; ++i) {
                tally.changed += label[std::size_t(i - begin)] != work.labels[i];
                work.labels[i] = label[std::size_t(i - begin)];
            }
        };
        if constexpr (!is_dense<Rows>) {
            if (coarse_) {
                scan.coarse.nearest(work.x, work.centroids, *coarse_, begin, end - begin);
                take(scan.coarse.label);
                return tally;
            }
        }
        scan.nearest(work, begin, nullptr, end - begin, false);
        take(scan.label);
        return tally;
    }

    void moved(const Movement&) {}

private:
    static constexpr Size least_k = 32, probed = 256;
    static constexpr int passes_without = 16;

    // Decides whether the rows are labelled by a first look (coarse.hpp), which pays while it
    // settles nearly all of them.
    template <class Rows>
    bool worth_a_look(const Work<Rows>& work, const Threads& threads) {
        const Centroids<R>& centroids = work.centroids;
        if (centroids.k() < least_k || centroids.frame().metric == Metric::manhattan ||
            !Coarse<R>::fits(centroids))
            return false;
        if (wait_ > 0) {
            --wait_;
            return false;
        }
        const Coarse<R>& coarse = Coarse<R>::of(centroids, threads);
        const Size some = std::min(probed, work.x.n);
        CoarseScan<R> scan;
        const Size open =
            some ? scan.nearest(work.x, centroids, coarse, 0, some, work.x.n / some) : 0;
        if (open * 16 > some) {
            wait_ = passes_without;
            return false;
        }
        coarse_ = &coarse;
        return true;
    }

    const Coarse<R>* coarse_ = nullptr;  // null: no first look in this pass
    int wait_ = 0;
};

}  // namespace exactmeans
