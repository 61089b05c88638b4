#include "exactmeans/update/cluster_sums.hpp"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "exactmeans/update/geodesic_means.hpp"
#include "exactmeans/update/means.hpp"
#include "exactmeans/update/medians.hpp"

namespace exactmeans {
namespace {

using BinsState = std::tuple<std::vector<double>, int, int>;

Bins make_grid(const Array<const double, 1>& bounds, Size n) {
    require(bounds.shape(0) > 0, "bounds must not be empty");
    return Bins(std::vector<double>(bounds.data(), bounds.data() + bounds.shape(0)), n);
}

void require_kind(const Sums& sums, const Block& block) {
    const bool dense =
        std::visit([](const auto& x) { return is_dense<std::decay_t<decltype(x)>>; }, block.rows);
    require(!dense || !sums.sparse(), "sparse sums take CSR rows only");
}

void relabel(Sums& sums, const Block& block, const std::optional<Labels>& labels,
             const Labels& summed, int n_jobs) {
    const Size n = row_count(block.rows);
    require(column_count(block.rows) == sums.d(), "sums and rows differ in width");
    require_kind(sums, block);
    require(Size(summed.shape(0)) == n && (!labels || Size(labels->shape(0)) == n),
            "there must be one label per row");
    const std::int32_t* to = labels ? labels->data() : nullptr;
    unlocked(n_jobs, [&](const Threads& threads) {
        std::visit([&](const auto& x) { sums.relabel(x, to, summed.data(), threads); }, block.rows);
    });
}

void move_row(Sums& sums, const Block& block, Size i, Size cluster, bool add) {
    require(i >= 0 && i < row_count(block.rows) && cluster >= 0 && cluster < sums.k(),
            "there is no such row or cluster");
    require_kind(sums, block);
    const FloatEnvironment arithmetic;
    std::visit([&](const auto& x) { sums.move(x, i, cluster, add ? 1.0 : -1.0); }, block.rows);
}

// The sums of all nonempty clusters as arrays: cluster numbers, offsets of their features,
// features, bins x features values, and per cluster the bins of its weight and its member count.
// Dense sums have no feature list, and clusters x bins x d values.
nb::object export_sums(const Sums& sums) {
    const Size bins = sums.grid().bins(), weight_bins = sums.weight_grid().bins();
    std::vector<std::int64_t> ids, offsets{0}, members;
    std::vector<std::int32_t> features;
    std::vector<double> values, weights;
    const std::vector<double> all = sums.sparse() ? std::vector<double>() : sums.bins();
    for (Size j = 0; j < sums.k(); ++j) {
        const double* weight = sums.weight_bins().data() + j * weight_bins;
        const double* own = all.data() + j * bins * sums.d();
        const auto any = [](const double* from, Size count) {
            return std::any_of(from, from + count, [](double bin) { return bin != 0; });
        };
        const Size held =
            sums.sparse() ? sums.sparse_sum(j).size() : Size(any(own, bins * sums.d()));
        if (!held && !any(weight, weight_bins) && !sums.members()[std::size_t(j)]) continue;
        ids.push_back(j);
        members.push_back(sums.members()[std::size_t(j)]);
        weights.insert(weights.end(), weight, weight + weight_bins);
        if (!sums.sparse()) {
            values.insert(values.end(), own, own + bins * sums.d());
            continue;
        }
        for (const std::uint32_t f : sums.sparse_sum(j).features())
            features.push_back(std::int32_t(f));
        offsets.push_back(std::int64_t(features.size()));
    }
    const std::size_t count = ids.size();
    for (Size w = 0; sums.sparse() && w < bins; ++w)
        for (const std::int64_t j : ids) {
            const SparseSum& sum = sums.sparse_sum(j);
            values.insert(values.end(), sum.plane(int(w)), sum.plane(int(w)) + sum.size());
        }
    std::vector<std::size_t> shape{std::size_t(bins), features.size()};
    if (!sums.sparse()) shape = {count, std::size_t(bins), std::size_t(sums.d())};
    return nb::make_tuple(to_numpy(ids, {count}), to_numpy(offsets, {offsets.size()}),
                          to_numpy(features, {features.size()}), to_numpy(values, shape),
                          to_numpy(weights, {count, std::size_t(weight_bins)}),
                          to_numpy(members, {count}));
}

using Integers = Array<const std::int64_t, 1>;
using Exported = std::tuple<Integers, Integers, Array<const std::int32_t, 1>,
                            nb::ndarray<const double, nb::c_contig, nb::device::cpu>,
                            Array<const double, 2>, Integers>;

// Adds exported sums of another Sums with the same bins.
void absorb(Sums& sums, const Exported& exported) {
    const auto& [ids, offsets, features, values, weights, members] = exported;
    const Size count = Size(ids.shape(0)), bins = sums.grid().bins(),
               total = Size(features.shape(0)), held = sums.sparse() ? total : count * sums.d();
    require(Size(members.shape(0)) == count && Size(weights.shape(0)) == count &&
                Size(weights.shape(1)) == sums.weight_grid().bins() &&
                Size(values.size()) == held * bins &&
                (!sums.sparse() || (Size(offsets.shape(0)) == count + 1 && offsets.data()[0] == 0 &&
                                    offsets.data()[count] == total)),
            "exported sums must have the bins of these sums");
    const FloatEnvironment arithmetic;
    for (Size c = 0; c < count; ++c) {
        require(ids.data()[c] >= 0 && ids.data()[c] < sums.k(), "there is no such cluster");
        SparseSum sum{int(bins)};
        const Size begin = sums.sparse() ? offsets.data()[c] : 0,
                   end = sums.sparse() ? offsets.data()[c + 1] : 0;
        require(begin <= end && end <= total, "offsets must not decrease");
        for (Size t = begin, last = -1; t < end; last = features.data()[t++]) {
            require(features.data()[t] > last && features.data()[t] < sums.d(),
                    "features must ascend");
            sum.push(features.data()[t], values.data() + t, total);
        }
        sums.absorb(ids.data()[c], sum, values.data() + (sums.sparse() ? 0 : c * bins * sums.d()),
                    weights.data() + c * sums.weight_grid().bins(), members.data()[c]);
    }
}

// The means of all clusters as values, indices and offsets of a CSR matrix.
template <class R>
nb::object sparse_average(const Sums& sums) {
    CsrArrays<R> rows;
    const FloatEnvironment arithmetic;
    for (Size j = 0; j < sums.k(); ++j) {
        SparseVector<R> own;
        sums.mean(sums.weight(j) > 0 ? j : sums.heaviest(), own);
        rows.add(own);
    }
    return rows.numpy();
}

template <class R>
void average(const Sums& sums, const Array<R, 2>& centres) {
    require(Size(centres.shape(0)) == sums.k() && Size(centres.shape(1)) == sums.d(),
            "centres must be k by d");
    const FloatEnvironment arithmetic;
    sums.average(centres.data());
}

// Calls fn(x) for rows of the dtype of `centres`, after checking shapes and labels.
template <class R, class Fn>
auto on_clusters(const Block& block, const Labels& labels, const Array<R, 2>& centres, Fn fn) {
    const Size n = row_count(block.rows), k = Size(centres.shape(0));
    require(Size(labels.shape(0)) == n, "there must be one label per row");
    require(Size(centres.shape(1)) == column_count(block.rows), "centres and rows differ in width");
    require_labels(labels.data(), n, k);
    return std::visit(
        [&](const auto& x) -> double {
            if constexpr (std::is_same_v<typename std::decay_t<decltype(x)>::Real, R>)
                return fn(x);
            else
                throw std::invalid_argument("rows and centres must have the same dtype");
        },
        block.rows);
}

template <class R>
void move_to_medians(const Block& block, const Labels& labels, const Array<R, 2>& centres,
                     int n_jobs) {
    unlocked(n_jobs, [&](const Threads& threads) {
        on_clusters(block, labels, centres, [&](const auto& x) {
            medians(x, labels.data(), Size(centres.shape(0)), centres.data(), threads);
            return 0.0;
        });
    });
}

template <class R>
double move_to_karcher(const Block& block, const Labels& labels, const Array<R, 2>& centres,
                       Size most_steps, double tolerance, int n_jobs) {
    return unlocked(n_jobs, [&](const Threads& threads) {
        return on_clusters(block, labels, centres, [&](const auto& x) {
            require(x.norms, "the lengths of the rows must be known");
            Karcher karcher(x, labels.data(), Size(centres.shape(0)), threads);
            return karcher.run(centres.data(), most_steps, tolerance);
        });
    });
}

// A CentreUpdate in either precision, and the origin of the scatter.
struct AnyCentreUpdate {
    std::variant<CentreUpdate<float>, CentreUpdate<double>> of;
    std::vector<double> origin;
};

AnyCentreUpdate make_centre_update(bool single, Size k, const Array<const double, 1>& origin) {
    std::vector<double> about(origin.data(), origin.data() + origin.shape(0));
    if (single) return {CentreUpdate<float>(k), std::move(about)};
    return {CentreUpdate<double>(k), std::move(about)};
}

template <class R>
Centres<R>& fitting(CentreUpdate<R>&, AnyCentreUpdate& any, const Sums& sums,
                    AnyCentres& centroids) {
    auto* shared = centroids.shared<R>();
    require(shared, "the centres have another dtype");
    Centres<R>& own = shared->centres;
    require(own.k() == sums.k() && own.d() == sums.d() &&
                (sums.sparse() || Size(any.origin.size()) == sums.d()),
            "sums and centres must have one shape");
    require(own.sparse() == sums.sparse(), "sums and centres must both be sparse, or neither");
    return own;
}

void observe(AnyCentreUpdate& any, const Sums& sums, AnyCentres& centroids) {
    const FloatEnvironment arithmetic;
    std::visit(
        [&](auto& step) {
            step.observe(sums, fitting(step, any, sums, centroids), any.origin.data());
        },
        any.of);
}

Movement run(AnyCentreUpdate& any, Sums& sums, AnyCentres& centroids, int n_jobs) {
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
    nb::class_<Bins>(m, "Grid")
        .def(
            "__init__",
            [](Bins* self, const Array<const double, 1>& bounds, Size n) {
                new (self) Bins(make_grid(bounds, n));
            },
            nb::call_guard<FloatEnvironment>())
        .def_prop_rw("bins", &Bins::bins, &Bins::set_bins, nb::call_guard<FloatEnvironment>())
        .def_prop_ro("exponent", &Bins::exponent)
        .def("__getstate__",
             [](const Bins& grid) {
                 return BinsState{grid.bounds(), grid.count_bits(), grid.bins()};
             })
        .def(
            "__setstate__",
            [](Bins& grid, const BinsState& state) {
                const auto& [bounds, bits, bins] = state;
                require(
                    !bounds.empty() && bins >= 1 && bins <= Bins::most && bits >= 0 && bits <= 62,
                    "the state of the bins is not valid");
                new (&grid) Bins(bounds, Size(1) << bits);
                grid.set_bins(bins);
            },
            nb::call_guard<FloatEnvironment>());

    nb::class_<Sums>(m, "Sums")
        .def(nb::init<Size, Size, Bins, Bins, bool>(), nb::arg("k"), nb::arg("d"), nb::arg("grid"),
             nb::arg("weight_grid"), nb::arg("sparse") = false)
        .def("reset", &Sums::reset)
        .def("relabel", &relabel, nb::arg("rows"), nb::arg("labels").none(), nb::arg("summed"),
             nb::arg("n_jobs"))
        .def("move", &move_row, nb::arg("rows"), nb::arg("i"), nb::arg("cluster"), nb::arg("add"))
        .def("add", &Sums::add, nb::call_guard<FloatEnvironment>())
        .def("absorb", &absorb, nb::arg("exported"))
        .def("export", &export_sums)
        .def_prop_ro("blank",
                     [](const Sums& s) {
                         return nb::make_tuple(s.k(), s.d(), s.grid(), s.weight_grid(), s.sparse());
                     })
        .def("average", &average<float>)
        .def("average", &average<double>)
        .def("sparse_average",
             [](const Sums& s, bool single) {
                 require(s.sparse(), "these sums are dense");
                 return single ? sparse_average<float>(s) : sparse_average<double>(s);
             })
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
        .def_prop_ro("bins", [](const Sums& s) {
            return to_numpy(s.bins(),
                            {std::size_t(s.k()), std::size_t(s.grid().bins()), std::size_t(s.d())});
        });

    m.def("move_to_medians", &move_to_medians<float>);
    m.def("move_to_medians", &move_to_medians<double>);
    m.def("move_to_karcher", &move_to_karcher<float>);
    m.def("move_to_karcher", &move_to_karcher<double>);

    nb::class_<AnyCentreUpdate>(m, "CentreUpdate")
        .def("__init__",
             [](AnyCentreUpdate* self, bool single, Size k, const Array<const double, 1>& origin) {
                 new (self) AnyCentreUpdate(make_centre_update(single, k, origin));
             })
        .def("observe", &observe)
        .def("run", &run)
        .def_prop_ro(
            "explained",
            [](const AnyCentreUpdate& any) {
                return std::visit([](const auto& step) { return step.explained(); }, any.of);
            },
            nb::call_guard<FloatEnvironment>());
}

}  // namespace exactmeans
