#include <nanobind/stl/string.h>

#include <limits>

#include "bindings.hpp"
#include "exactmeans/tree/route.hpp"
#include "exactmeans/tree/split.hpp"

namespace exactmeans {
namespace {

using Integers = Array<const std::int64_t, 1>;

NodeSeeding seeding_of(const std::string& name) {
    if (name == "k-means++") return NodeSeeding::plus_plus;
    if (name == "random") return NodeSeeding::random;
    require(name == "given", "seeding must be k-means++, random or given");
    return NodeSeeding::given;
}

void check_nodes(const Integers& rows, const Integers& offsets, Size n) {
    const Size nodes = Size(offsets.shape(0)) - 1;
    require(nodes >= 0 && offsets.data()[0] == 0 && offsets.data()[nodes] == Size(rows.shape(0)),
            "offsets must cover the rows");
    for (Size t = 0; t < nodes; ++t)
        require(offsets.data()[t] <= offsets.data()[t + 1], "offsets must not decrease");
    for (std::size_t t = 0; t < rows.shape(0); ++t)
        require(rows.data()[t] >= 0 && rows.data()[t] < n, "there is no such row");
}

// The centres of all splits: a dense array, or the three arrays of a CSR matrix.
template <class R>
nb::object centres_of(const std::vector<NodeSplit<R>>& splits, bool sparse, Size d) {
    std::size_t children = 0, entries = 0;
    for (const NodeSplit<R>& split : splits) {
        children += std::size_t(split.children);
        entries += split.centres.size();
        for (const SparseVector<R>& centre : split.sparse_centres)
            entries += std::size_t(centre.size());
    }
    if (sparse) {
        CsrArrays<R> rows(children, entries);
        for (const NodeSplit<R>& split : splits)
            for (const SparseVector<R>& centre : split.sparse_centres) rows.add(centre);
        return rows.numpy();
    }
    std::vector<R> values;
    values.reserve(entries);
    for (const NodeSplit<R>& split : splits)
        values.insert(values.end(), split.centres.begin(), split.centres.end());
    return to_numpy(values, {children, std::size_t(d)});
}

template <class R>
nb::object results_of(const std::vector<NodeSplit<R>>& splits, bool sparse, Size d) {
    std::vector<std::int64_t> children, iterations, exponents, shifted;
    std::vector<std::uint8_t> converged;
    std::vector<double> inertia, price;
    std::vector<R> shifts;
    for (std::size_t t = 0; t < splits.size(); ++t) {
        const NodeSplit<R>& split = splits[t];
        children.push_back(split.children);
        iterations.push_back(split.iterations);
        converged.push_back(split.converged);
        exponents.push_back(split.frame.exponent + split.frame.packing);  // one of them is 0
        inertia.insert(inertia.end(), split.inertia.begin(), split.inertia.end());
        price.insert(price.end(), split.price.begin(), split.price.end());
        if (split.frame.shift.empty()) continue;
        shifted.push_back(std::int64_t(t));
        shifts.insert(shifts.end(), split.frame.shift.begin(), split.frame.shift.end());
    }
    return nb::make_tuple(
        to_numpy(children, {children.size()}), centres_of(splits, sparse, d),
        to_numpy(inertia, {inertia.size()}), to_numpy(price, {price.size()}),
        to_numpy(iterations, {iterations.size()}), to_numpy(converged, {converged.size()}),
        to_numpy(exponents, {exponents.size()}), to_numpy(shifted, {shifted.size()}),
        to_numpy(shifts, {shifted.size(), std::size_t(d)}));
}

template <class R>
nb::object split_as(const Block& block, const std::vector<NodeTask>& tasks,
                    const std::vector<std::int32_t*>& labels, const SplitOptions& options,
                    int n_jobs) {
    const bool sparse =
        std::visit([](const auto& x) { return !is_dense<std::decay_t<decltype(x)>>; }, block.rows);
    const auto splits = unlocked(n_jobs, [&](const Threads& threads) {
        return split_nodes<R>(block.rows, tasks, labels, options, threads);
    });
    return results_of(splits, sparse, column_count(block.rows));
}

bool is_single(const AnyRows& rows) {
    return std::visit([](const auto& x) { return sizeof(*x.data) == sizeof(float); }, rows);
}

// Returns children per node, centres, inertia and price (if balanced) per child, iterations,
// converged, exponents, and the nodes with a shift with their shifts.
nb::object split(const Block& block, const Integers& rows, const Integers& offsets,
                 const Integers& k, const Array<const std::uint32_t, 1>& seeds,
                 const std::optional<Integers>& seed_rows, const Labels& labels,
                 const std::string& seeding, Size max_iter, double tol, bool relative,
                 bool balanced, int n_jobs) {
    check_nodes(rows, offsets, row_count(block.rows));
    const std::size_t nodes = offsets.shape(0) - 1;
    require(k.shape(0) == nodes && seeds.shape(0) == nodes && labels.shape(0) == rows.shape(0),
            "there must be one k and one seed per node, and one label per row");
    const SplitOptions options{block.metric, seeding_of(seeding), max_iter, tol, relative,
                               balanced};
    require((options.seeding == NodeSeeding::given) == bool(seed_rows),
            "seed_rows must be given for seeding='given', and only for it");
    std::vector<NodeTask> tasks;
    std::vector<std::int32_t*> own_labels;
    Size seed = 0;
    for (std::size_t t = 0; t < nodes; ++t) {
        const Size begin = offsets.data()[t], n = offsets.data()[t + 1] - begin;
        require(k.data()[t] >= 1 && k.data()[t] <= n,
                "k must be at least 1 and at most the number of rows of the node");
        tasks.push_back({reinterpret_cast<const Size*>(rows.data()) + begin, n, k.data()[t],
                         seeds.data()[t], nullptr});
        own_labels.push_back(labels.data() + begin);
        if (!seed_rows) continue;
        require(seed + k.data()[t] <= Size(seed_rows->shape(0)), "there must be k seeds per node");
        tasks.back().seeds = reinterpret_cast<const Size*>(seed_rows->data()) + seed;
        for (Size j = 0; j < k.data()[t]; ++j, ++seed)
            require(seed_rows->data()[seed] >= 0 && seed_rows->data()[seed] < n,
                    "a seed must be a row of its node");
    }
    return is_single(block.rows) ? split_as<float>(block, tasks, own_labels, options, n_jobs)
                                 : split_as<double>(block, tasks, own_labels, options, n_jobs);
}

// Returns the iterations and the inertia of both children, or None if the general loop must do the
// fit. The final centres are in `centroids`.
nb::object bisect(const Block& block, const Integers& rows, AnyCentres& centroids, Sums& sums,
                  const Array<const double, 1>& origin, double tolerance, Size max_iter,
                  const Labels& labels, int n_jobs) {
    const Size n = row_count(block.rows), d = column_count(block.rows);
    require(block.metric == Metric::euclidean, "bisect_rows supports the euclidean metric only");
    require(rows.shape(0) == labels.shape(0), "there must be one label per row");
    require(sums.k() == 2 && sums.d() == d && !sums.sparse(), "sums must be of two clusters");
    require(Size(origin.shape(0)) == d, "the origin must have a value per column");
    if (n > std::numeric_limits<std::int32_t>::max()) return nb::none();
    std::vector<std::int32_t> picks;
    for (std::size_t t = 0; t < rows.shape(0); ++t) {
        const Size i = rows.data()[t];
        require(i >= 0 && i < n, "there is no such row");
        picks.push_back(std::int32_t(i));
    }
    return std::visit(
        [&]<class Rows>(const Rows& x) -> nb::object {
            using R = typename Rows::Real;
            SharedCentres<R>* const shared = centroids.shared<R>();
            require(shared && shared->centres.k() == 2 && shared->centres.d() == d,
                    "there must be two centres in the dtype of the rows");
            if constexpr (is_dense<Rows>) {
                if (x.picks) return nb::none();
                const BisectResult found = unlocked(n_jobs, [&](const Threads& threads) {
                    return bisect_rows(x, picks, *shared, sums, origin.data(), tolerance, max_iter,
                                       labels.data(), threads);
                });
                if (!found.done) return nb::none();
                return nb::make_tuple(found.iterations, found.inertia[0], found.inertia[1]);
            } else {
                throw std::invalid_argument("rows must be dense");
            }
        },
        block.rows);
}

template <class R>
struct RouteInput {
    const Integers &rows, &offsets, &first, &past;
    const Array<const std::int32_t, 1>& exponents;
    const Integers& shift_of;  // per task: row of `shifts`, or -1
    std::optional<Array<const R, 2>> shifts;
    const std::optional<Array<const double, 1>>& prices;  // of all nodes
    Size m;
};

template <class R>
nb::object route_as(const Block& block, const NodeCentres<R>& centres, Size nodes,
                    const RouteInput<R>& given, bool distances, int n_jobs) {
    check_nodes(given.rows, given.offsets, row_count(block.rows));
    require(column_count(block.rows) == centres.d, "centres and rows differ in width");
    const std::size_t tasks_count = given.offsets.shape(0) - 1, total = given.rows.shape(0);
    require(given.first.shape(0) == tasks_count && given.past.shape(0) == tasks_count &&
                given.exponents.shape(0) == tasks_count && given.shift_of.shape(0) == tasks_count,
            "there must be children, an exponent and a shift per node");
    require(!given.prices || Size(given.prices->shape(0)) == nodes,
            "there must be one price per node");
    std::vector<std::int32_t> child(total * std::size_t(given.m), -1);
    std::vector<double> distance(distances ? child.size() : 0,
                                 std::numeric_limits<double>::infinity());
    // A node with fewer than m children writes fewer entries per row, at the front of its part of
    // the arrays. They are moved apart to m entries per row afterwards.
    std::vector<RouteTask<R>> tasks;
    for (std::size_t t = 0; t < tasks_count; ++t) {
        const Size begin = given.offsets.data()[t], n = given.offsets.data()[t + 1] - begin,
                   first = given.first.data()[t], k = given.past.data()[t] - first;
        require(first >= 0 && k >= 1 && first + k <= nodes, "there is no such child");
        Frame<R> frame{0, {}, block.metric, 0};
        (is_spherical(block.metric) ? frame.packing : frame.exponent) = given.exponents.data()[t];
        if (const Size row = given.shift_of.data()[t]; row >= 0) {
            require(given.shifts && row < Size(given.shifts->shape(0)) &&
                        Size(given.shifts->shape(1)) == centres.d,
                    "there is no such shift");
            const R* shift = given.shifts->data() + row * centres.d;
            frame.shift.assign(shift, shift + centres.d);
        }
        tasks.push_back({reinterpret_cast<const Size*>(given.rows.data()) + begin, n, first, k,
                         std::move(frame), given.prices ? given.prices->data() + first : nullptr,
                         std::min(given.m, k), child.data() + begin * given.m,
                         distances ? distance.data() + begin * given.m : nullptr});
    }
    unlocked(n_jobs,
             [&](const Threads& threads) { route_rows(block.rows, centres, tasks, threads); });
    for (const RouteTask<R>& task : tasks)
        for (Size i = task.n - 1; task.m < given.m && i >= 0; --i)
            for (Size r = given.m - 1; r >= 0; --r) {
                task.child[i * given.m + r] = r < task.m ? task.child[i * task.m + r] : -1;
                if (task.distance)
                    task.distance[i * given.m + r] = r < task.m
                                                         ? task.distance[i * task.m + r]
                                                         : std::numeric_limits<double>::infinity();
            }
    const std::vector<std::size_t> shape{total, std::size_t(given.m)};
    return nb::make_tuple(to_numpy(child, shape),
                          distances ? to_numpy(distance, shape) : nb::object(nb::none()));
}

template <class R>
nb::object route_dense(const Block& block, const Array<const R, 2>& centres, const Integers& rows,
                       const Integers& offsets, const Integers& first, const Integers& past,
                       const Array<const std::int32_t, 1>& exponents, const Integers& shift_of,
                       const std::optional<Array<const R, 2>>& shifts,
                       const std::optional<Array<const double, 1>>& prices, Size m, bool distances,
                       int n_jobs) {
    require(m >= 1, "m must be at least 1");
    const NodeCentres<R> all{Size(centres.shape(1)), centres.data(), nullptr};
    return route_as<R>(block, all, Size(centres.shape(0)),
                       {rows, offsets, first, past, exponents, shift_of, shifts, prices, m},
                       distances, n_jobs);
}

nb::object route_sparse(const Block& block, const SparseCentres& centres, const Integers& rows,
                        const Integers& offsets, const Integers& first, const Integers& past,
                        const Array<const std::int32_t, 1>& exponents, const Integers& shift_of,
                        const nb::object&, const std::optional<Array<const double, 1>>& prices,
                        Size m, bool distances, int n_jobs) {
    require(m >= 1, "m must be at least 1");
    return std::visit(
        [&]<class R>(const std::vector<SparseVector<R>>& of) {
            const NodeCentres<R> all{centres.d, nullptr, &of};
            return route_as<R>(block, all, centres.k(),
                               {rows, offsets, first, past, exponents, shift_of, {}, prices, m},
                               distances, n_jobs);
        },
        centres.of);
}

}  // namespace

void bind_tree(nb::module_& m) {
    m.def("split_nodes", &split, nb::arg("rows"), nb::arg("ids"), nb::arg("offsets"), nb::arg("k"),
          nb::arg("seeds"), nb::arg("seed_rows").none(), nb::arg("labels"), nb::arg("seeding"),
          nb::arg("max_iter"), nb::arg("tol"), nb::arg("relative"), nb::arg("balanced"),
          nb::arg("n_jobs"));
    m.def("bisect_rows", &bisect, nb::arg("rows"), nb::arg("ids"), nb::arg("centroids"),
          nb::arg("sums"), nb::arg("origin"), nb::arg("tolerance"), nb::arg("max_iter"),
          nb::arg("labels"), nb::arg("n_jobs"));
    const auto route = [&](auto function) {
        m.def("route_rows", function, nb::arg("rows"), nb::arg("centres"), nb::arg("ids"),
              nb::arg("offsets"), nb::arg("first"), nb::arg("past"), nb::arg("exponents"),
              nb::arg("shift_of"), nb::arg("shifts").none(), nb::arg("prices").none(), nb::arg("m"),
              nb::arg("distances"), nb::arg("n_jobs"));
    };
    route(&route_dense<float>);
    route(&route_dense<double>);
    route(&route_sparse);
}

}  // namespace exactmeans
