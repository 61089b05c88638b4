#include "exactmeans/update.hpp"

#include "bindings.hpp"
#include "exactmeans/advance.hpp"

namespace exactmeans {
namespace {

Grid make_grid(const Array<const double, 1>& bounds, Size n) {
    require(bounds.shape(0) > 0, "a grid needs at least one bound");
    return Grid(std::vector<double>(bounds.data(), bounds.data() + bounds.shape(0)), n);
}

void relabel(Sums& sums, const Block& block, const std::optional<Labels>& labels,
             const Labels& summed, int n_jobs) {
    const Size n = row_count(block.rows);
    require(column_count(block.rows) == sums.d(), "sums and rows differ in width");
    require(Size(summed.shape(0)) == n && (!labels || Size(labels->shape(0)) == n),
            "there must be one label per row");
    const std::int32_t* to = labels ? labels->data() : nullptr;
    for (Size i = 0; i < n; ++i)
        require((!to || (to[i] >= 0 && to[i] < sums.k())) && summed.data()[i] < sums.k(),
                "a label is out of range");
    unlocked(n_jobs, [&](const Threads& threads) {
        std::visit([&](const auto& x) { sums.relabel(x, to, summed.data(), threads); }, block.rows);
    });
}

void move_row(Sums& sums, const Block& block, Size i, Size cluster, bool add) {
    require(i >= 0 && i < row_count(block.rows) && cluster >= 0 && cluster < sums.k(),
            "no such row or cluster");
    const FloatEnvironment arithmetic;
    std::visit([&](const auto& x) { sums.move(x, i, cluster, add ? 1.0 : -1.0); }, block.rows);
}

template <class R>
void average(const Sums& sums, const Array<R, 2>& centres) {
    require(Size(centres.shape(0)) == sums.k() && Size(centres.shape(1)) == sums.d(),
            "centres must be k by d");
    const FloatEnvironment arithmetic;
    sums.average(centres.data());
}

// An Advance of either precision, and the origin that scatter is measured about.
struct AnyAdvance {
    std::variant<Advance<float>, Advance<double>> of;
    std::vector<double> origin;
};

AnyAdvance make_advance(bool single, Size k, const Array<const double, 1>& origin) {
    std::vector<double> about(origin.data(), origin.data() + origin.shape(0));
    if (single) return {Advance<float>(k), std::move(about)};
    return {Advance<double>(k), std::move(about)};
}

template <class R>
Centroids<R>& fitting(Advance<R>&, AnyAdvance& any, const Sums& sums, AnyCentroids& centroids) {
    auto* own = std::get_if<std::unique_ptr<Centroids<R>>>(&centroids.of);
    require(own, "the centres have another dtype");
    require(
        (*own)->k() == sums.k() && (*own)->d() == sums.d() && Size(any.origin.size()) == sums.d(),
        "sums and centres must have one shape");
    return **own;
}

void observe(AnyAdvance& any, const Sums& sums, AnyCentroids& centroids) {
    const FloatEnvironment arithmetic;
    std::visit(
        [&](auto& step) {
            step.observe(sums, fitting(step, any, sums, centroids), any.origin.data());
        },
        any.of);
}

Movement run(AnyAdvance& any, Sums& sums, AnyCentroids& centroids, int n_jobs) {
    return std::visit(
        [&](auto& step) {
            auto& own = fitting(step, any, sums, centroids);
            return unlocked(n_jobs, [&](const Threads& threads) {
                return step.run(sums, own, any.origin.data(), threads);
            });
        },
        any.of);
}

}  // namespace

void bind_update(nb::module_& m) {
    nb::class_<Grid>(m, "Grid")
        .def(
            "__init__",
            [](Grid* self, const Array<const double, 1>& bounds, Size n) {
                new (self) Grid(make_grid(bounds, n));
            },
            nb::call_guard<FloatEnvironment>())
        .def_prop_rw("words", &Grid::words, &Grid::set_words, nb::call_guard<FloatEnvironment>())
        .def_prop_ro("exponent", &Grid::exponent);

    nb::class_<Sums>(m, "Sums")
        .def(nb::init<Size, Size, Grid, Grid>(), nb::arg("k"), nb::arg("d"), nb::arg("grid"),
             nb::arg("weight_grid"))
        .def("reset", &Sums::reset)
        .def("relabel", &relabel, nb::arg("rows"), nb::arg("labels").none(), nb::arg("summed"),
             nb::arg("n_jobs"))
        .def("move", &move_row, nb::arg("rows"), nb::arg("i"), nb::arg("cluster"), nb::arg("add"))
        .def("add", &Sums::add, nb::call_guard<FloatEnvironment>())
        .def("average", &average<float>)
        .def("average", &average<double>)
        .def_prop_ro("members",
                     [](const Sums& s) { return to_numpy(s.members(), {s.members().size()}); })
        .def_prop_ro("any_empty", &Sums::any_empty)
        .def_prop_ro("weights",
                     [](const Sums& s) {
                         std::vector<double> weights;
                         const FloatEnvironment arithmetic;
                         for (Size j = 0; j < s.k(); ++j) weights.push_back(s.weight(j));
                         return to_numpy(weights, {weights.size()});
                     })
        .def_prop_ro("words", [](const Sums& s) {
            return to_numpy(
                s.words(), {std::size_t(s.k()), std::size_t(s.grid().words()), std::size_t(s.d())});
        });

    nb::class_<AnyAdvance>(m, "Advance")
        .def("__init__",
             [](AnyAdvance* self, bool single, Size k, const Array<const double, 1>& origin) {
                 new (self) AnyAdvance(make_advance(single, k, origin));
             })
        .def("observe", &observe)
        .def("run", &run)
        .def_prop_ro(
            "explained",
            [](const AnyAdvance& any) {
                return std::visit([](const auto& step) { return step.explained(); }, any.of);
            },
            nb::call_guard<FloatEnvironment>());
}

}  // namespace exactmeans
