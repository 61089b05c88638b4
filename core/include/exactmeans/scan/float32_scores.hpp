// Chooses between scores in float32 and in the dtype of CSR rows, pass by pass.
#pragma once

#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/scan/scan.hpp"

namespace exactmeans {

// Lays out centres for a pass that needs labels: in float32 if float32 scores decide nearly all
// labels, which a probe of a few rows tests in each pass.
class Float32Scores {
public:
    template <class Rows>
    void pack(Work<Rows>& work, const Threads& threads) {
        if constexpr (!is_dense<Rows>) {
            if (backoff_.due() && work.pack_float32(threads) && pays(work)) return;
            work.float32_panels = {};
        }
        work.pack_centres(threads);
        if (work.reordered()) work.measure_rows(threads);
    }

private:
    // Do few of the probed rows need canonical scores?
    template <class Rows>
    bool pays(const Work<Rows>& work) {
        const std::vector<Size> ids = spaced_rows(work.x.n, cost::float32_probed_rows);
        const Size some = Size(ids.size());
        Scan<Rows> scan;
        const bool paid =
            cost::float32_verified_share * scan.nearest_by_float32(work, 0, ids.data(), some) <=
            some;
        backoff_.record(paid);
        return paid;
    }

    Backoff backoff_{cost::longest_wait, cost::longest_wait};
};

}  // namespace exactmeans
