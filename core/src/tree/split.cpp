#include "exactmeans/tree/split.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <type_traits>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/tree/node_fit.hpp"
#include "exactmeans/tree/node_rows.hpp"

namespace exactmeans {
namespace {

// Renumbers the features of sparse centres as the whole matrix numbers them.
template <class R>
void number_features(NodeSplit<R>& split, const std::vector<std::uint32_t>& features) {
    for (SparseVector<R>& centre : split.sparse_centres)
        for (std::uint32_t& f : centre.feature) f = features[f];
}

// Nodes by decreasing size, so that no thread ends with a large one.
std::vector<Size> largest_first(const std::vector<NodeTask>& tasks) {
    std::vector<Size> order(tasks.size());
    std::iota(order.begin(), order.end(), Size(0));
    std::stable_sort(order.begin(), order.end(), [&](Size a, Size b) {
        return tasks[std::size_t(a)].n > tasks[std::size_t(b)].n;
    });
    return order;
}

template <class Rows>
std::vector<NodeSplit<typename Rows::Real>> split_rows(const Rows& x,
                                                       const std::vector<NodeTask>& tasks,
                                                       const std::vector<std::int32_t*>& labels,
                                                       const SplitOptions& options,
                                                       const Threads& threads) {
    using Gathered = typename NodeRows<Rows>::Gathered;
    std::vector<NodeSplit<typename Rows::Real>> out(tasks.size());
    std::vector<std::unique_ptr<NodeRows<Rows>>> buffers(std::size_t(threads.n_jobs));
    const std::vector<Size> order = largest_first(tasks);
    const auto split = [&](Size at, int worker, const Threads& inside) {
        const std::size_t t = std::size_t(order[std::size_t(at)]);
        auto& buffer = buffers[std::size_t(worker)];
        if (!buffer) buffer = std::make_unique<NodeRows<Rows>>(x.d);
        bool whole = false;  // the root, whose rows need no copy
        Gathered own;
        if constexpr (is_dense<Rows>)
            whole = tasks[t].n == x.n && x.col_stride == 1;
        else
            whole = tasks[t].n == x.n && std::is_same_v<Gathered, Rows>;
        if constexpr (std::is_same_v<Gathered, Rows>)
            if (whole) own = x;
        if (!whole) own = buffer->gather(x, tasks[t].rows, tasks[t].n);
        const auto fit = [&](const SplitOptions& how) {
            return NodeFit<Gathered>(own, tasks[t], x.d, how, inside).run(how.max_iter, labels[t]);
        };
        out[t] = fit(options);
        if (options.balanced && out[t].children == 1) {
            // So many rows are equal that they fill more than one balanced child. Splits without
            // balance, which at least separates them from the other rows.
            SplitOptions unbalanced = options;
            unbalanced.balanced = false;
            out[t] = fit(unbalanced);
            out[t].price.assign(std::size_t(out[t].children), 0.0);
        }
        out[t].features = x.d;
        if constexpr (!is_dense<Rows>)
            if (!whole) number_features(out[t], buffer->features());
    };
    Size large = 0;
    while (large < Size(order.size()) &&
           tasks[std::size_t(order[std::size_t(large)])].n > cost::large_node_rows)
        split(large++, 0, threads);
    threads.run(Size(tasks.size()) - large,
                [&](Size at, int worker) { split(large + at, worker, Threads{1}); });
    return out;
}

}  // namespace

template <class R>
std::vector<NodeSplit<R>> split_nodes(const AnyRows& rows, const std::vector<NodeTask>& tasks,
                                      const std::vector<std::int32_t*>& labels,
                                      const SplitOptions& options, const Threads& threads) {
    if (options.metric != Metric::euclidean && options.metric != Metric::cosine)
        throw std::invalid_argument("nodes are split by euclidean or cosine distances");
    return std::visit(
        [&](const auto& x) -> std::vector<NodeSplit<R>> {
            if constexpr (std::is_same_v<typename std::decay_t<decltype(x)>::Real, R>)
                return split_rows(x, tasks, labels, options, threads);
            else
                throw std::invalid_argument("rows have another dtype");
        },
        rows);
}

template std::vector<NodeSplit<float>> split_nodes(const AnyRows&, const std::vector<NodeTask>&,
                                                   const std::vector<std::int32_t*>&,
                                                   const SplitOptions&, const Threads&);
template std::vector<NodeSplit<double>> split_nodes(const AnyRows&, const std::vector<NodeTask>&,
                                                    const std::vector<std::int32_t*>&,
                                                    const SplitOptions&, const Threads&);

}  // namespace exactmeans
