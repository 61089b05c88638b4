#include "exactmeans/tree/route.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/evaluate/nearest_centres.hpp"
#include "exactmeans/numerics/compensated.hpp"
#include "exactmeans/scan/all_scores.hpp"
#include "exactmeans/tree/child_cost.hpp"
#include "exactmeans/tree/node_rows.hpp"

namespace exactmeans {
namespace {

// Scores rows at one node and chooses their children. Buffers of one thread.
template <class Rows>
class Router {
public:
    using R = typename Rows::Real;
    using Gathered = typename NodeRows<Rows>::Gathered;

    explicit Router(Size d) : rows_(d) {}

    void run(const Rows& x, const NodeCentres<R>& all, const RouteTask<R>& task) {
        const Gathered own = rows_.gather(x, task.rows, task.n);
        SharedCentres<R> shared(children(all, task));
        const HeldPanels<R> panels = shared.layouts.panels(shared.centres, is_dense<Rows>, one_);
        for (Size begin = 0; begin < task.n; begin += cost::node_tile_rows) {
            const Size count = std::min(Size(cost::node_tile_rows), task.n - begin);
            scores_.run(own, shared.centres, panels, begin, nullptr, count);
            for (Size t = 0; t < count; ++t) choose(own, task, begin + t, t);
        }
    }

private:
    // The children as centres. Sparse ones are restricted to the features of the rows, but keep the
    // norms of the whole centres.
    Centres<R> children(const NodeCentres<R>& all, const RouteTask<R>& task) const {
        if constexpr (is_dense<Rows>) {
            return Centres<R>(all.values + task.first * all.d, task.k, all.d, task.frame, one_);
        } else {
            std::vector<SparseVector<R>> own;
            std::vector<double> norms2;
            for (Size j = task.first; j < task.first + task.k; ++j) {
                const SparseVector<R>& whole = (*all.sparse)[std::size_t(j)];
                own.push_back(rows_.restricted(whole));
                norms2.push_back(offset_norm(whole, task.frame));
            }
            const Size d = std::max<Size>(1, Size(rows_.features().size()));
            Centres<R> centres(std::move(own), d, task.frame, one_);
            if (!is_spherical(task.frame.metric)) centres.set_norms(norms2.data(), 1);
            return centres;
        }
    }
    // Twice the score offset of a centre: its squared norm, or twice its L1 norm.
    static double offset_norm(const SparseVector<R>& centre, const Frame<R>& frame) {
        if (frame.metric == Metric::manhattan)
            return 2 * norm1(centre.value.data(), centre.size()).value();
        return vector_kernels<R>()
            .sparse_square_sum(centre.feature.data(), centre.value.data(), centre.size(),
                               frame.scale())
            .value();
    }

    // Writes the nearest children of row i, row t of the tile.
    void choose(const Gathered& x, const RouteTask<R>& task, Size i, Size t) {
        std::int32_t* const child = task.child + i * task.m;
        if (task.price) {
            priced_.resize(std::size_t(task.k));
            for (Size j = 0; j < task.k; ++j)
                priced_[std::size_t(j)] =
                    child_cost(x, i, task.frame, scores_.of_row(t)[j]) + task.price[j];
            lowest_priced_.select(priced_.data(), task.k, task.m, child);
        } else {
            lowest_.select(scores_.of_row(t), task.k, task.m, child);
        }
        if (!task.distance) return;
        const double norm2 = scores_.norm2(x, i, t, task.frame.scale());
        for (Size r = 0; r < task.m; ++r)
            task.distance[i * task.m + r] =
                distance(x, i, norm2, task.frame, double(scores_.of_row(t)[child[r]]));
    }
    // The distance, not its square, which may leave the range of float64; 1 - cos of directions.
    static double distance(const Gathered& x, Size i, double norm2, const Frame<R>& frame,
                           double score) {
        if (frame.metric == Metric::manhattan) return std::max(0.0, score);
        if (x.norms) return x.norms[i] > 0 ? 1 + std::ldexp(score, -frame.packing) / x.norms[i] : 1;
        return std::ldexp(std::sqrt(std::max(0.0, norm2 + 2 * score)), -frame.exponent);
    }

    const Threads one_{1};
    NodeRows<Rows> rows_;
    AllScores<Gathered> scores_;
    std::vector<double> priced_;
    LowestScores<R> lowest_;
    LowestScores<double> lowest_priced_;
};

}  // namespace

template <class R>
void route_rows(const AnyRows& rows, const NodeCentres<R>& centres,
                const std::vector<RouteTask<R>>& tasks, const Threads& threads) {
    std::visit(
        [&]<class Rows>(const Rows& x) {
            if constexpr (std::is_same_v<typename Rows::Real, R>) {
                std::vector<std::unique_ptr<Router<Rows>>> routers(std::size_t(threads.n_jobs));
                threads.run(Size(tasks.size()), [&](Size t, int worker) {
                    auto& router = routers[std::size_t(worker)];
                    if (!router) router = std::make_unique<Router<Rows>>(x.d);
                    router->run(x, centres, tasks[std::size_t(t)]);
                });
            } else {
                throw std::invalid_argument("rows have another dtype");
            }
        },
        rows);
}

template void route_rows(const AnyRows&, const NodeCentres<float>&,
                         const std::vector<RouteTask<float>>&, const Threads&);
template void route_rows(const AnyRows&, const NodeCentres<double>&,
                         const std::vector<RouteTask<double>>&, const Threads&);

}  // namespace exactmeans
