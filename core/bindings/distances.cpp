// Distances of rows from centres or other points, as methods of Rows.
#include <nanobind/stl/pair.h>

#include "bindings.hpp"
#include "exactmeans/evaluate/distance_sums.hpp"
#include "exactmeans/evaluate/distances.hpp"
#include "exactmeans/evaluate/nearest_centres.hpp"
#include "exactmeans/evaluate/own_distances.hpp"

namespace exactmeans {
namespace {

const std::int32_t* labels_of(const std::optional<Labels>& labels, Size n, Size k) {
    if (!labels) return nullptr;
    require(Size(labels->shape(0)) == n, "there must be one label per row");
    require_labels(labels->data(), n, k);
    return labels->data();
}

// Calls fn(points) for dense or sparse centres.
template <class C, class Fn>
auto on_points(const Array<const C, 2>& centres, const Block& block, int exponent, Fn fn) {
    const Size d = column_count(block.rows);
    require(Size(centres.shape(1)) == d, "centres and rows differ in width");
    const FloatEnvironment arithmetic;
    return fn(Points<C>(centres.data(), Size(centres.shape(0)), d, exponent, block.metric));
}
template <class Fn>
auto on_points(const SparseCentres& centres, const Block& block, int exponent, Fn fn) {
    require(centres.d == column_count(block.rows), "centres and rows differ in width");
    const FloatEnvironment arithmetic;
    return std::visit(
        [&](const auto& of) { return fn(Points(of, centres.d, exponent, block.metric)); },
        centres.of);
}

// The scatter about points in float64 (means) or in the dtype of the data (centres): with and
// without weights.
template <class Centres>
std::pair<ExactSum, ExactSum> scatter_of(const Block& block, const Centres& centres,
                                         const std::optional<Labels>& labels, int exponent,
                                         int n_jobs) {
    return on_points(centres, block, exponent, [&](const auto& points) {
        const std::int32_t* own = labels_of(labels, row_count(block.rows), points.k);
        const Scatter all = on_rows(block, n_jobs, [&](const auto& x, const Threads& threads) {
            return scatter(x, points, own, threads);
        });
        return std::pair{all.weighted, all.plain};
    });
}

template <class Centres>
void own_distances(const Block& block, const Centres& centres, const Labels& labels, int exponent,
                   const Array<double, 1>& out, int n_jobs) {
    require(Size(out.shape(0)) == row_count(block.rows), "out must have one entry per row");
    on_points(centres, block, exponent, [&](const auto& points) {
        const std::int32_t* own = labels_of(labels, row_count(block.rows), points.k);
        on_rows(block, n_jobs, [&](const auto& x, const Threads& threads) {
            for_own_distances(x, points, own, threads,
                              [&](Size i, double d2, int) { out.data()[i] = d2; });
            return 0;
        });
    });
}

template <class C, class Centres>
void transform_rows(const Block& block, const Centres& centres,
                    const std::optional<Array<const C, 1>>& shift, int exponent,
                    const Array<C, 2>& out, int n_jobs) {
    const Size d = column_count(block.rows);
    require(!shift || Size(shift->shape(0)) == d, "centres and rows differ in width");
    on_points(centres, block, exponent, [&](const auto& points) {
        require(Size(out.shape(0)) == row_count(block.rows) && Size(out.shape(1)) == points.k,
                "out must be rows by centres");
        on_rows(block, n_jobs, [&](const auto& x, const Threads& threads) {
            using Of = std::decay_t<decltype(points)>;
            if constexpr (std::is_same_v<typename std::decay_t<decltype(x)>::Real, C> &&
                          std::is_same_v<Of, Points<C>>)
                transform(x, points, shift ? shift->data() : nullptr, out.data(), threads);
            else
                throw std::invalid_argument("rows and centres must have the same dtype");
            return 0;
        });
    });
}

template <class Given>
void add_distances_of(const Block& block, const Given& members, const Labels& labels,
                      const nb::object& shift, int exponent, const Array<double, 2>& out,
                      int n_jobs) {
    const Size k = Size(out.shape(1));
    require(Size(out.shape(0)) == row_count(block.rows), "out must have one row of sums per row");
    on_points(members, block, exponent, [&]<class C>(const Points<C>& points) {
        require(Size(labels.shape(0)) == points.k, "there must be one label per member");
        require_labels(labels.data(), points.k, k);
        std::optional<Array<const C, 1>> own_shift;
        if (!shift.is_none()) own_shift = nb::cast<Array<const C, 1>>(shift);
        require(!own_shift || Size(own_shift->shape(0)) == points.d,
                "shift and rows differ in width");
        on_rows(block, n_jobs, [&](const auto& x, const Threads& threads) {
            if constexpr (std::is_same_v<typename std::decay_t<decltype(x)>::Real, C>)
                add_distances(x, points, own_shift ? own_shift->data() : nullptr, labels.data(), k,
                              out.data(), threads);
            else
                throw std::invalid_argument("rows and members must have the same dtype");
            return 0;
        });
    });
}

template <class C, class Given>
void nearest_rows(const Block& block, AnyCentres& any, const Given& centres, int exponent,
                  const Array<std::int32_t, 2>& labels, const Array<C, 2>& distances, int n_jobs) {
    auto* shared = std::get_if<std::unique_ptr<SharedCentres<C>>>(&any.of);
    const std::size_t n = std::size_t(row_count(block.rows)), m = labels.shape(1);
    require(shared && column_count(block.rows) == (*shared)->centres.d(),
            "centres and rows differ in width or dtype");
    on_points(centres, block, exponent, [&](const auto& points) {
        require(labels.shape(0) == n && distances.shape(0) == n && distances.shape(1) == m &&
                    m >= 1 && Size(m) <= points.k && points.k == (*shared)->centres.k(),
                "labels and distances must be rows by nearest centres");
        on_rows(block, n_jobs, [&](const auto& x, const Threads& threads) {
            using Of = std::decay_t<decltype(points)>;
            if constexpr (std::is_same_v<typename std::decay_t<decltype(x)>::Real, C> &&
                          std::is_same_v<Of, Points<C>>)
                nearest_centres(NearestQuery(x, **shared, points, Size(m), threads), labels.data(),
                                distances.data(), threads);
            else
                throw std::invalid_argument("rows and centres must have the same dtype");
            return 0;
        });
    });
}

}  // namespace

void bind_distances(nb::class_<Block>& rows) {
    rows.def("scatter", &scatter_of<Array<const float, 2>>, nb::arg("centres"),
             nb::arg("labels").none(), nb::arg("exponent"), nb::arg("n_jobs"))
        .def("scatter", &scatter_of<Array<const double, 2>>, nb::arg("centres"),
             nb::arg("labels").none(), nb::arg("exponent"), nb::arg("n_jobs"))
        .def("scatter", &scatter_of<SparseCentres>, nb::arg("centres"), nb::arg("labels").none(),
             nb::arg("exponent"), nb::arg("n_jobs"))
        .def("own_distances", &own_distances<Array<const float, 2>>)
        .def("own_distances", &own_distances<Array<const double, 2>>)
        .def("own_distances", &own_distances<SparseCentres>)
        .def("transform", &transform_rows<float, Array<const float, 2>>, nb::arg("centres"),
             nb::arg("shift").none(), nb::arg("exponent"), nb::arg("out"), nb::arg("n_jobs"))
        .def("transform", &transform_rows<double, Array<const double, 2>>, nb::arg("centres"),
             nb::arg("shift").none(), nb::arg("exponent"), nb::arg("out"), nb::arg("n_jobs"))
        .def("transform", &transform_rows<float, SparseCentres>, nb::arg("centres"),
             nb::arg("shift").none(), nb::arg("exponent"), nb::arg("out"), nb::arg("n_jobs"))
        .def("transform", &transform_rows<double, SparseCentres>, nb::arg("centres"),
             nb::arg("shift").none(), nb::arg("exponent"), nb::arg("out"), nb::arg("n_jobs"))
        .def("add_distances", &add_distances_of<Array<const float, 2>>, nb::arg("members"),
             nb::arg("labels"), nb::arg("shift").none(), nb::arg("exponent"), nb::arg("out"),
             nb::arg("n_jobs"))
        .def("add_distances", &add_distances_of<Array<const double, 2>>, nb::arg("members"),
             nb::arg("labels"), nb::arg("shift").none(), nb::arg("exponent"), nb::arg("out"),
             nb::arg("n_jobs"))
        .def("add_distances", &add_distances_of<SparseCentres>, nb::arg("members"),
             nb::arg("labels"), nb::arg("shift").none(), nb::arg("exponent"), nb::arg("out"),
             nb::arg("n_jobs"))
        .def("nearest", &nearest_rows<float, Array<const float, 2>>, nb::arg("centroids"),
             nb::arg("centres"), nb::arg("exponent"), nb::arg("labels"), nb::arg("distances"),
             nb::arg("n_jobs"))
        .def("nearest", &nearest_rows<double, Array<const double, 2>>, nb::arg("centroids"),
             nb::arg("centres"), nb::arg("exponent"), nb::arg("labels"), nb::arg("distances"),
             nb::arg("n_jobs"))
        .def("nearest", &nearest_rows<float, SparseCentres>, nb::arg("centroids"),
             nb::arg("centres"), nb::arg("exponent"), nb::arg("labels"), nb::arg("distances"),
             nb::arg("n_jobs"))
        .def("nearest", &nearest_rows<double, SparseCentres>, nb::arg("centroids"),
             nb::arg("centres"), nb::arg("exponent"), nb::arg("labels"), nb::arg("distances"),
             nb::arg("n_jobs"));
}

}  // namespace exactmeans
