// Decides, pass by pass, whether the 8-bit filter labels CSR rows: a probe of a few rows tests
// whether 8-bit scores decide nearly all of them, and a Backoff spaces the probes.
#pragma once

#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/filter/quantized_filter.hpp"

namespace exactmeans {

template <class R>
class FilterProbe {
public:
    // Can the filter be used for these centres?
    static bool fits(const Centres<R>& centroids, const LayoutSettings& settings) {
        return centroids.k() >= cost::filter_centres &&
               scores_are_products(centroids.frame().metric) &&
               QuantizedCentres<R>::fits(centroids, settings);
    }
    // Should this pass quantise the centres and call pays()?
    bool due(const Centres<R>& centroids, const LayoutSettings& settings) {
        return fits(centroids, settings) && backoff_.due();
    }
    // Does the filter decide nearly all of a few rows? Records the answer.
    template <class I>
    bool pays(const CsrRows<R, I>& x, const Centres<R>& centroids,
              const QuantizedCentres<R>& centres) {
        const std::vector<Size> ids = spaced_rows(x.n, cost::probed_rows);
        const Size count = Size(ids.size());
        const auto row_of = [&](Size t) { return ids[std::size_t(t)]; };
        filter_.load_some(x, count, row_of);
        filter_.quantize(centres);
        const auto undecided = filter_.label_rows(x, centroids, centres, row_of);
        const bool paid = undecided.refined * cost::refined_share <= count &&
                          undecided.verified * cost::verified_share <= count;
        backoff_.record(paid);
        return paid;
    }

private:
    Backoff backoff_{cost::longest_wait, cost::longest_wait};
    QuantizedFilter<R> filter_;
};

}  // namespace exactmeans
