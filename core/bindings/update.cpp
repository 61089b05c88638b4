#include "exactmeans/update.hpp"

#include "bindings.hpp"

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
void average(Sums& sums, const Array<R, 2>& centres, int n_jobs) {
    require(Size(centres.shape(0)) == sums.k() && Size(centres.shape(1)) == sums.d(),
            "centres must be k by d");
    unlocked(n_jobs, [&](const Threads& threads) { sums.average(centres.data(), threads); });
}

template <class R>
double explained(const Sums& sums, const Array<const R, 2>& centres,
                 const Array<const double, 1>& origin, int exponent, int n_jobs) {
    require(Size(centres.shape(0)) == sums.k() && Size(centres.shape(1)) == sums.d() &&
                Size(origin.shape(0)) == sums.d(),
            "centres must be k by d");
    return unlocked(n_jobs, [&](const Threads& threads) {
        return sums.explained(centres.data(), origin.data(), exponent, threads);
    });
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
        .def("explained", &explained<float>)
        .def("explained", &explained<double>)
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
}

}  // namespace exactmeans
