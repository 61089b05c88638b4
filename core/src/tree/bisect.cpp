#include <algorithm>

#include "exactmeans/tree/bisection.hpp"
#include "exactmeans/tree/split.hpp"

namespace exactmeans {

template <class R>
BisectResult bisect_rows(const DenseRows<R>& x, const std::vector<std::int32_t>& rows,
                         SharedCentres<R>& shared, Sums& sums, const double* origin,
                         double tolerance, Size max_iter, std::int32_t* labels,
                         const Threads& threads) {
    DenseRows<R> own = x;
    own.n = Size(rows.size());
    std::vector<double> weights;
    if (own.n < x.n) {
        own.picks = rows.data();
        if (x.weights) {
            for (const std::int32_t i : rows) weights.push_back(x.weights[i]);
            own.weights = weights.data();
        }
    }
    Bisection<R> bisection(own, shared, sums, origin, threads);
    BisectResult out;
    out.done = bisection.run(max_iter, tolerance, labels);
    out.iterations = bisection.iterations;
    std::copy(bisection.inertia.begin(), bisection.inertia.end(), out.inertia);
    return out;
}

template BisectResult bisect_rows(const DenseRows<float>&, const std::vector<std::int32_t>&,
                                  SharedCentres<float>&, Sums&, const double*, double, Size,
                                  std::int32_t*, const Threads&);
template BisectResult bisect_rows(const DenseRows<double>&, const std::vector<std::int32_t>&,
                                  SharedCentres<double>&, Sums&, const double*, double, Size,
                                  std::int32_t*, const Threads&);

}  // namespace exactmeans
