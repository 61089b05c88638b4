#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/row_dedup.hpp"
#include "exactmeans/evaluate/own_distances.hpp"
#include "exactmeans/numerics/bins.hpp"
#include "exactmeans/numerics/frame.hpp"
#include "exactmeans/numerics/survey.hpp"

namespace exactmeans {
namespace {

using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
using AnyVector = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Weights = std::optional<Array<const double, 1>>;

const double* weights_of(const Weights& weights, Size n) {
    if (!weights) return nullptr;
    require(Size(weights->shape(0)) == n, "there must be one weight per row");
    return weights->data();
}

template <class R>
DenseRows<R> dense_rows(const AnyMatrix& x, const Weights& weights) {
    const Size n = Size(x.shape(0));
    return {
        static_cast<const R*>(x.data()), n, Size(x.shape(1)), Size(x.stride(0)), Size(x.stride(1)),
        weights_of(weights, n)};
}

Block make_dense(const AnyMatrix& x, const Weights& weights) {
    std::vector<nb::object> owners{nb::cast(x)};
    if (weights) owners.push_back(nb::cast(*weights));
    if (x.dtype() == nb::dtype<float>()) return {dense_rows<float>(x, weights), std::move(owners)};
    if (x.dtype() == nb::dtype<double>())
        return {dense_rows<double>(x, weights), std::move(owners)};
    throw std::invalid_argument("rows must be float32 or float64");
}

template <class R, class I>
std::pair<AnyRows, bool> csr_rows(const AnyVector& data, const AnyVector& indices,
                                  const Offsets& offsets, Size n, Size d, const double* weights) {
    const CsrRows<R, I> rows{static_cast<const R*>(data.data()),
                             static_cast<const I*>(indices.data()),
                             offsets,
                             n,
                             d,
                             weights};
    const Size entries = std::min(Size(data.shape(0)), Size(indices.shape(0)));
    const bool ascending = check_csr(rows, entries);
    return {rows, ascending};
}

// Returns the rows and whether their indices ascend strictly. Throws if reading them would leave
// the bounds of the arrays.
std::pair<Block, bool> make_csr(const AnyVector& data, const AnyVector& indices,
                                const AnyVector& indptr, Size d, const Weights& weights) {
    const Size n = Size(indptr.shape(0)) - 1;
    require(n >= 0, "X.indptr must not be empty");
    const bool offsets_are_32_bit = indptr.dtype() == nb::dtype<std::int32_t>();
    require(offsets_are_32_bit || indptr.dtype() == nb::dtype<std::int64_t>(),
            "X.indptr must be int32 or int64");
    const bool indices_are_32_bit = indices.dtype() == nb::dtype<std::int32_t>();
    require(indices_are_32_bit || indices.dtype() == nb::dtype<std::int64_t>(),
            "X.indices must be int32 or int64");
    const bool single = data.dtype() == nb::dtype<float>();
    require(single || data.dtype() == nb::dtype<double>(), "rows must be float32 or float64");
    Offsets offsets;
    if (offsets_are_32_bit)
        offsets.offsets32 = static_cast<const std::int32_t*>(indptr.data());
    else
        offsets.offsets64 = static_cast<const std::int64_t*>(indptr.data());
    const double* w = weights_of(weights, n);
    const auto make =
        single
            ? (indices_are_32_bit ? &csr_rows<float, std::int32_t> : &csr_rows<float, std::int64_t>)
            : (indices_are_32_bit ? &csr_rows<double, std::int32_t>
                                  : &csr_rows<double, std::int64_t>);
    auto [rows, ascending] = make(data, indices, offsets, n, d, w);
    std::vector<nb::object> owners{nb::cast(data), nb::cast(indices), nb::cast(indptr)};
    if (weights) owners.push_back(nb::cast(*weights));
    return {Block{rows, std::move(owners)}, ascending};
}

// The same rows with another metric, and with their lengths for spherical metrics.
Block with_metric(const Block& block, const std::string& metric, const Weights& weights,
                  const Weights& norms) {
    Block out = block;
    out.metric = metric_of(metric);
    require(bool(norms) == is_spherical(out.metric),
            "lengths of the rows must be given for spherical metrics, and only for these");
    std::visit(
        [&](auto& x) {
            x.weights = weights_of(weights, x.n);
            x.norms = weights_of(norms, x.n);
        },
        out.rows);
    if (norms) out.owners.push_back(nb::cast(*norms));
    if (weights) out.owners.push_back(nb::cast(*weights));
    return out;
}

int bins_needed_by(const Block& block, const Bins& grid, int n_jobs) {
    return on_rows(block, n_jobs, [&](const auto& x, const Threads& threads) {
        std::vector<int> needed(static_cast<std::size_t>(threads.n_jobs), 1);
        threads.ranges(x.n, cost::read_rows_per_task, [&](Size begin, Size end, int worker) {
            int& most = needed[std::size_t(worker)];
            most = bins_needed(x, grid, begin, end, most);
        });
        return *std::max_element(needed.begin(), needed.end());
    });
}

void lengths(const Block& block, const Array<double, 1>& out, int n_jobs) {
    require(Size(out.shape(0)) == row_count(block.rows), "out must have one entry per row");
    on_rows(block, n_jobs, [&](const auto& x, const Threads& threads) {
        using R = typename std::decay_t<decltype(x)>::Real;
        threads.ranges(x.n, cost::read_rows_per_task, [&](Size begin, Size end, int) {
            std::vector<R> buffer;
            for (Size i = begin; i < end; ++i) {
                const auto row = stored(x, i, buffer);
                out.data()[i] = row_length(row.value, row.nonzeros);
            }
        });
        return 0;
    });
}

// The groups of duplicate rows of a block, and the first rows of the groups as a block.
struct DuplicateRows {
    std::unique_ptr<DistinctRows> distinct;
    Block rows;
};

// None if deduplication does not pay. The block of first rows has no weights, because only labels
// are computed from it.
std::optional<DuplicateRows> find_duplicates(const Block& block, int n_jobs) {
    DuplicateRows duplicates{nullptr, block};
    duplicates.distinct = on_rows(
        block, n_jobs, [](const auto& x, const Threads& threads) -> std::unique_ptr<DistinctRows> {
            using Rows = std::decay_t<decltype(x)>;
            if constexpr (is_dense<Rows>) {
                // Not for spherical metrics: DenseRows::norms are not indexed through picks.
                if (!x.norms) return RowDedup<typename Rows::Real>(x).find(threads);
            }
            return nullptr;
        });
    if (!duplicates.distinct) return std::nullopt;
    std::visit(
        [&](auto& x) {
            if constexpr (is_dense<std::decay_t<decltype(x)>>) {
                x.picks = duplicates.distinct->first.data();
                x.n = Size(duplicates.distinct->first.size());
                x.weights = nullptr;
            }
        },
        duplicates.rows.rows);
    return duplicates;
}

Size copy_labels(const DuplicateRows& duplicates, const Labels& by_group, const Labels& labels,
                 int n_jobs) {
    const DistinctRows& distinct = *duplicates.distinct;
    require(by_group.shape(0) == distinct.first.size(),
            "there must be one label per group of duplicates");
    require(labels.shape(0) == distinct.group.size(), "there must be one label per row");
    return unlocked(n_jobs, [&](const Threads& threads) {
        return distinct.copy_labels(by_group.data(), labels.data(), threads);
    });
}

// Divides each vector values[offsets[j], offsets[j + 1]) by its length, unless that is 0.
template <class R>
void normalise(const Array<R, 1>& values, const Array<const std::int64_t, 1>& offsets) {
    const FloatEnvironment arithmetic;
    const Size entries = Size(values.shape(0));
    std::vector<double> copy;
    for (std::size_t j = 0; j + 1 < offsets.shape(0); ++j) {
        const Size begin = offsets.data()[j], end = offsets.data()[j + 1];
        require(0 <= begin && begin <= end && end <= entries, "offsets must lie within the values");
        copy.assign(values.data() + begin, values.data() + end);
        direction(copy.data(), end - begin, 0, values.data() + begin);
    }
}

template <class R>
SparseCentres make_sparse_centres(const Array<const R, 1>& data, const AnyVector& indices,
                                  const AnyVector& indptr, Size d) {
    require(d <= largest_sparse_d, "X must have at most 2^31 columns");
    auto [block, ascending] = make_csr(AnyVector(data), indices, indptr, d, {});
    require(ascending, "centres must be in canonical form");
    std::vector<SparseVector<R>> centres;
    std::visit(
        [&](const auto& rows) {
            if constexpr (!is_dense<std::decay_t<decltype(rows)>>)
                for (Size j = 0; j < rows.n; ++j) {
                    const auto row = rows.row(j);
                    SparseVector<R>& centre = centres.emplace_back();
                    for (Size t = 0; t < row.nonzeros; ++t)
                        if (row.value[t] != 0) centre.push(Size(row.index[t]), R(row.value[t]));
                }
        },
        block.rows);
    return {std::move(centres), d};
}

// The pickled forms of exact sums and surveys.
using SurveyState = std::tuple<std::vector<double>, double, double, Size, bool>;

std::vector<std::int64_t> get_exact_sum_state(const ExactSum& sum) {
    ExactSum normalised;
    normalised.add(sum);
    return {normalised.words().begin(), normalised.words().end()};
}

void set_exact_sum_state(ExactSum& sum, const std::vector<std::int64_t>& words) {
    require(words.size() == std::size_t(ExactSum::digits),
            "the state of an exact sum has another length");
    new (&sum) ExactSum();
    std::copy(words.begin(), words.end(), sum.words().begin());
}

}  // namespace

void bind_rows(nb::module_& m) {
    nb::class_<ExactSum>(m, "ExactSum")
        .def(nb::init<>())
        .def("add", nb::overload_cast<double>(&ExactSum::add))
        .def("add", nb::overload_cast<const ExactSum&>(&ExactSum::add))
        .def_prop_ro("value", &ExactSum::value, nb::call_guard<FloatEnvironment>())
        .def("__getstate__", &get_exact_sum_state)
        .def("__setstate__", &set_exact_sum_state);

    nb::class_<Survey>(m, "Survey")
        .def(nb::init<Size>(), nb::arg("columns"))
        .def(
            "merge",
            [](Survey& s, const Survey& other, Size row_offset) {
                require(other.bounds.size() == s.bounds.size(), "surveys must have equal columns");
                s.merge(other, row_offset);
            },
            nb::arg("other"), nb::arg("row_offset"), nb::call_guard<FloatEnvironment>())
        .def_ro("largest", &Survey::largest)
        .def_ro("largest_weight", &Survey::largest_weight)
        .def_ro("first_bad_row", &Survey::first_bad_row)
        .def_ro("bad_is_nan", &Survey::bad_is_nan)
        .def_prop_ro("bounds",
                     [](const Survey& s) { return to_numpy(s.bounds, {s.bounds.size()}); })
        .def("__getstate__",
             [](const Survey& s) {
                 return SurveyState{s.bounds, s.largest, s.largest_weight, s.first_bad_row,
                                    s.bad_is_nan};
             })
        .def("__setstate__", [](Survey& s, const SurveyState& state) {
            new (&s) Survey(0);
            std::tie(s.bounds, s.largest, s.largest_weight, s.first_bad_row, s.bad_is_nan) = state;
        });

    nb::class_<Block> rows(m, "Rows");
    rows.def_static("dense", &make_dense, nb::arg("x"), nb::arg("weights").none())
        .def_static("csr", &make_csr, nb::arg("data"), nb::arg("indices"), nb::arg("indptr"),
                    nb::arg("d"), nb::arg("weights").none())
        .def_prop_ro("n", [](const Block& b) { return row_count(b.rows); })
        .def_prop_ro("d", [](const Block& b) { return column_count(b.rows); })
        .def("with_metric", &with_metric, nb::arg("metric"), nb::arg("weights").none(),
             nb::arg("norms").none())
        .def("duplicates", &find_duplicates, nb::arg("n_jobs"))
        .def("lengths", &lengths, nb::arg("out"), nb::arg("n_jobs"))
        .def("survey",
             [](const Block& b, int n_jobs) {
                 return on_rows(b, n_jobs,
                                [](const auto& x, const Threads& t) { return survey(x, t); });
             })
        .def("count_features",
             [](const Block& b, const Array<std::int64_t, 1>& counts) {
                 require(Size(counts.shape(0)) == column_count(b.rows),
                         "there must be one count per feature");
                 std::visit([&](const auto& x) { count_features(x, counts.data()); }, b.rows);
             })
        .def("bins_needed", &bins_needed_by, nb::arg("grid"), nb::arg("n_jobs"));
    bind_distances(rows);

    nb::class_<DuplicateRows>(m, "DuplicateRows")
        .def_prop_ro(
            "rows", [](const DuplicateRows& duplicates) { return duplicates.rows; },
            nb::keep_alive<0, 1>())
        .def_prop_ro("first",
                     [](const DuplicateRows& duplicates) {
                         const auto& first = duplicates.distinct->first;
                         return to_numpy(first, {first.size()});
                     })
        .def("copy_labels", &copy_labels, nb::arg("first_labels"), nb::arg("labels"),
             nb::arg("n_jobs"));

    nb::class_<SparseCentres>(m, "SparseCentres")
        .def_static("make", &make_sparse_centres<float>, nb::arg("data"), nb::arg("indices"),
                    nb::arg("indptr"), nb::arg("d"))
        .def_static("make", &make_sparse_centres<double>, nb::arg("data"), nb::arg("indices"),
                    nb::arg("indptr"), nb::arg("d"));

    m.attr("minimum_mean_length") = minimum_mean_length;
    m.attr("least_scatter_share") = least_scatter_share;
    m.def("normalise", &normalise<float>);
    m.def("normalise", &normalise<double>);
    m.def(
        "safe_exponent",
        [](double largest, bool single) {
            return single ? safe_exponent<float>(largest) : safe_exponent<double>(largest);
        },
        nb::call_guard<FloatEnvironment>());
}

}  // namespace exactmeans
