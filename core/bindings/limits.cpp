#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/row_hash.hpp"
#include "exactmeans/limits/limited_assignment.hpp"

namespace exactmeans {
namespace {

using Prices = Array<const double, 1>;

std::vector<double> prices_of(const Prices& prices, Size k) {
    require(Size(prices.shape(0)) == k, "there must be one price per centre");
    return {prices.data(), prices.data() + k};
}

// Calls fn(rows, centres, threads) for rows and centres of the same dtype.
template <class Fn>
void on_rows_and_centres(const Block& block, AnyCentres& any, int n_jobs, Fn fn) {
    require(block.metric != Metric::manhattan, "prices cannot be used with the manhattan metric");
    std::visit(
        [&]<class Rows>(const Rows& x) {
            auto* shared = any.shared<typename Rows::Real>();
            require(shared && shared->centres.d() == x.d,
                    "centres and rows differ in width or dtype");
            unlocked(n_jobs, [&](const Threads& threads) {
                fn(x, *shared, threads);
                return 0;
            });
        },
        block.rows);
}

void add_block(LimitedAssignment& state, Size number, Size first, const Block& block,
               AnyCentres& centroids, const Labels& labels, int n_jobs) {
    require(number >= 0 && first >= 0, "number and first must not be negative");
    require(Size(labels.shape(0)) == row_count(block.rows), "there must be one label per row");
    on_rows_and_centres(block, centroids, n_jobs,
                        [&](const auto& x, auto& shared, const Threads& threads) {
                            require(shared.centres.k() == Size(state.prices().size()),
                                    "there must be one price per centre");
                            state.add(number, first, x, shared, labels.data(), threads);
                        });
}

void label_by_prices(const Block& block, AnyCentres& centroids, const Prices& prices,
                     const Labels& labels, int n_jobs) {
    require(Size(labels.shape(0)) == row_count(block.rows), "there must be one label per row");
    on_rows_and_centres(
        block, centroids, n_jobs, [&](const auto& x, auto& shared, const Threads& threads) {
            priced_labels(x, shared, prices_of(prices, shared.centres.k()), labels.data(), threads);
        });
}

void hash_rows(const Block& block, const Array<std::uint64_t, 2>& out, int n_jobs) {
    require(Size(out.shape(0)) == row_count(block.rows) && out.shape(1) == 2,
            "out must have two columns, and one row per row of the block");
    unlocked(n_jobs, [&](const Threads& threads) {
        std::visit(
            [&](const auto& x) {
                threads.ranges(x.n, cost::read_rows_per_task, [&](Size begin, Size end, int) {
                    for (Size i = begin; i < end; ++i)
                        std::tie(out.data()[2 * i], out.data()[2 * i + 1]) = row_hash(x, i);
                });
            },
            block.rows);
        return 0;
    });
}

}  // namespace

void bind_limits(nb::module_& m) {
    nb::class_<LimitedAssignment>(m, "LimitedAssignment")
        .def(
            "__init__",
            [](LimitedAssignment* self, Size n, Size total, Size k, Size least, Size most,
               bool weighted, double mass_scale, Size most_options) {
                require(n > 0 && total > 0 && k > 0 && 0 <= least && least <= most,
                        "limits must satisfy 0 <= least <= most, for at least one row and cluster");
                new (self) LimitedAssignment(
                    LimitedProblem{n,
                                   total,
                                   k,
                                   {least, std::min(most, total)},
                                   weighted,
                                   mass_scale,
                                   std::min<Size>(most_options, cost::most_options)});
            },
            nb::arg("n"), nb::arg("total"), nb::arg("k"), nb::arg("least"), nb::arg("most"),
            nb::arg("weighted"), nb::arg("mass_scale"), nb::arg("most_options"))
        .def_ro_static("most_options", &cost::most_options)
        .def_ro_static("option_bytes", &cost::option_bytes)
        .def("moved", &LimitedAssignment::moved, nb::arg("movement"))
        .def("start", &LimitedAssignment::start, nb::arg("many"))
        .def("begin", &LimitedAssignment::begin)
        .def("add", &add_block, nb::arg("number"), nb::arg("first"), nb::arg("rows"),
             nb::arg("centroids"), nb::arg("labels"), nb::arg("n_jobs"))
        .def("solve",
             [](LimitedAssignment& state) {
                 return unlocked(1, [&](const Threads& threads) { return state.solve(threads); });
             })
        .def(
            "write",
            [](const LimitedAssignment& state, Size number, const Labels& labels) {
                state.write(number, labels.data(), Size(labels.shape(0)));
            },
            nb::arg("number"), nb::arg("labels"))
        .def(
            "set_state",
            [](LimitedAssignment& state, const Prices& prices, double reach) {
                state.set_state(prices_of(prices, Size(state.prices().size())), reach);
            },
            nb::arg("prices"), nb::arg("reach"))
        .def_prop_ro(
            "prices",
            [](const LimitedAssignment& s) { return to_numpy(s.prices(), {s.prices().size()}); })
        .def_prop_ro("reach", &LimitedAssignment::reach)
        .def_prop_ro("rows_scored", &LimitedAssignment::rows_scored);
    m.def("label_by_prices", &label_by_prices, nb::arg("rows"), nb::arg("centroids"),
          nb::arg("prices"), nb::arg("labels"), nb::arg("n_jobs"));
    m.def("hash_rows", &hash_rows, nb::arg("rows"), nb::arg("out"), nb::arg("n_jobs"));
}

}  // namespace exactmeans
