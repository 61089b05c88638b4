// Projections must not be farther apart than the points, beyond the rounding error that Axes
// allows. Without that allowance they are.
#include "exactmeans/project/projections.hpp"

#include <cmath>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

template <class T>
long double apart(const T* a, const T* b, Size d) {
    long double sum = 0;
    for (Size f = 0; f < d; ++f) {
        const long double step = static_cast<long double>(a[f]) - static_cast<long double>(b[f]);
        sum += step * step;
    }
    return std::sqrt(sum);
}

// n points in d dimensions that differ in `rank` of them, and elsewhere by `noise`.
template <class R>
Matrix<R> points(Random& random, Size n, Size d, Size rank, double noise) {
    const Matrix<double> axes(rank, d, [&] { return random.normal() / std::sqrt(double(d)); });
    Matrix<R> out(n, d);
    for (Size i = 0; i < n; ++i) {
        std::vector<double> along(static_cast<std::size_t>(rank));
        for (double& a : along) a = random.normal();
        for (Size f = 0; f < d; ++f) {
            double value = noise * random.normal();
            for (Size a = 0; a < rank; ++a) value += along[std::size_t(a)] * axes(a, f);
            out(i, f) = R(value);
        }
    }
    return out;
}

// How many pairs of projections are farther apart than the points, with and without the allowance
// for rounding.
struct Counts {
    Size pairs = 0, wrong = 0, raw_wrong = 0;
};

Counts count_axes(Size d, Size rank, double noise) {
    Random random(std::uint64_t(d + rank));
    const Size n = 100 + random.below(40);
    const Matrix<double> sample = points<double>(random, n, d, rank, noise);
    const Axes axes(sample.values, n, d);
    std::vector<double> centred(sample.values);
    for (Size i = 0; i < n; ++i)
        for (Size f = 0; f < d; ++f) centred[std::size_t(i * d + f)] -= axes.origin()[f];
    const std::vector<double> zero(static_cast<std::size_t>(d), 0.0);
    const Size m = axes.coordinates();
    std::vector<float> projected(static_cast<std::size_t>(n * m));
    axes.project(centred.data(), n, projected.data());
    Counts counts;
    for (Size a = 0; a < n; ++a)
        for (Size b = 0; b < a; ++b) {
            const double *x = centred.data() + a * d, *y = centred.data() + b * d;
            const long double truth = apart(x, y, d),
                              found = apart(projected.data() + a * m, projected.data() + b * m, m);
            const long double allowance =
                axes.error() * (apart(x, zero.data(), d) + apart(y, zero.data(), d));
            ++counts.pairs;
            counts.wrong += found > truth + allowance;
            counts.raw_wrong += found > truth;
        }
    return counts;
}

// Bounds between rows and groups of centres, in units.
template <class R>
void check_bounds(const Matrix<R>& x, const Matrix<R>& centres, Frame<R> frame, double tight) {
    SharedCentres<R> shared(Centres<R>(centres.row(0), centres.n, centres.d, frame, Threads{}));
    const Centres<R>& centroids = shared.centres;
    const auto held = shared.layouts.template get<Groups<R>>(centroids, true, Threads{});
    const Groups<R>& groups = *held;
    const DenseRows<R> rows = x.rows();
    RowSlacks<R> slacks;
    Work<DenseRows<R>> work(rows, shared, nullptr, slacks);
    work.measure_rows(Threads{});
    Projections<R> projections(work, slacks.unit(), Threads{2});
    projections.update(*held, centroids, Threads{2});
    typename Projections<R>::Buffers found;
    std::vector<Size> ids;
    for (Size i = x.n - 1; i >= 0; i -= 2) ids.push_back(i);
    const double scale = frame.scale() * slacks.unit();
    std::vector<double> a(static_cast<std::size_t>(x.d)), b(a);
    for (Size g = 0; g < groups.count(); ++g) {
        projections.compare(g, ids, found);
        for (std::size_t t = 0; t < ids.size(); ++t) {
            long double nearest = unreachable;
            for (Size j = 0; j < centres.n; ++j) {
                if (groups.group(j) != g || groups.copy(j)) continue;
                for (Size f = 0; f < x.d; ++f) {
                    const R value = x(ids[t], f);
                    a[std::size_t(f)] =
                        double(frame.shift.empty() ? value
                                                   : R(value - frame.shift[std::size_t(f)])) *
                        scale;
                    b[std::size_t(f)] = double(centroids.derived(j, f)) * scale;
                }
                nearest = std::min(nearest, apart(a.data(), b.data(), x.d));
            }
            CHECK(found.far[t] <= nearest);
            CHECK(tight == 0 || found.far[t] >= tight * nearest || nearest == unreachable);
        }
    }
}

template <class R>
void check_dtype() {
    Random random(5);
    const auto take = [&](Size n, Size d, Size rank, double noise, Size k) {
        const Matrix<R> all = points<R>(random, n + k, d, rank, noise);
        Matrix<R> x(n, d), centres(k, d);
        std::copy(all.row(0), all.row(n), x.values.begin());
        std::copy(all.row(n), all.row(n) + k * d, centres.values.begin());
        return std::pair{x, centres};
    };
    // Few directions hold nearly all of the variance; the bounds are tight. Below, many do.
    auto [x, centres] = take(300, 90, 10, 1e-3, 45);
    check_bounds<R>(x, centres, {}, 0.99);
    for (Size f = 0; f < x.d; ++f) centres(7, f) = centres(3, f);  // a copy
    check_bounds<R>(x, centres, {}, 0.99);
    // Rows on their centres.
    std::copy(x.row(0), x.row(20), centres.values.begin());
    check_bounds<R>(x, centres, {}, 0.0);
    auto [y, others] = take(300, 200, 150, 1.0, 45);
    check_bounds<R>(y, others, {}, 0.0);
    // A shift, a scale, and one distant centre.
    Frame<R> frame;
    frame.shift.assign(std::size_t(x.d), R(0.25));
    check_bounds<R>(x, centres, frame, 0.0);
    frame = {};
    frame.exponent = -40;
    for (R& value : x.values) value = std::ldexp(value, 40);
    for (R& value : centres.values) value = std::ldexp(value, 40);
    check_bounds<R>(x, centres, frame, 0.0);
    centres(11, 0) = R(1e30);
    check_bounds<R>(x, centres, frame, 0.0);
    // Hardly any rows, and rows that are all the same.
    auto [one, few] = take(1, 30, 3, 0.1, 9);
    check_bounds<R>(one, few, {}, 0.0);
    Matrix<R> same(20, 30, [] { return 1.5; });
    check_bounds<R>(same, few, {}, 0.0);
}

}  // namespace

TEST(projections_need_their_error_allowance) {
    for (const auto& [d, rank, noise] :
         {std::tuple<Size, Size, double>{40, 40, 0.0}, {300, 20, 0.0}, {300, 20, 1e-6}}) {
        const Counts counts = count_axes(d, rank, noise);
        CHECK_EQ(counts.wrong, 0);
        CHECK(counts.raw_wrong > counts.pairs / 100);
    }
}

TEST(bounds_by_projections_are_never_above_the_distance) {
    check_dtype<float>();
    check_dtype<double>();
}
