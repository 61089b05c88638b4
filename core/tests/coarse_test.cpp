#include "exactmeans/coarse.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "check.hpp"
#include "exactmeans/first_look.hpp"
#include "isas.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size d = 50;

template <class R>
Matrix<R> centres_of(Size k, bool signs, Random& random) {
    return Matrix<R>(k, d, [&] {
        const double value = random.below(3) ? std::pow(random.unit(), 3) : 0.0;
        return signs && random.coin() ? -value : value;
    });
}

// Rows of one feature each, whose scores tell the values of all centres in it.
template <class I, class R>
Csr<R, I> single_features() {
    Matrix<R> one(d, d);
    for (Size f = 0; f < d; ++f) one(f, f) = 1;
    return Csr<R, I>(one);
}

template <class R>
void check_values(const Coarse<R>& coarse, const Centroids<R>& centroids) {
    const Size k = centroids.k();
    const auto csr = single_features<std::int32_t, R>();
    CoarseScan<R> scan;
    scan.load(csr.rows(), 0, d);
    std::vector<double> low(static_cast<std::size_t>(k));
    for (Size f = 0; f < d; ++f) {
        coarse.lowest(scan.row(f), low.data());
        for (Size j = 0; j < k; ++j) {
            const double part = double(coarse.parts()[std::size_t(j)]),
                         start = double(centroids.start()[j]),
                         value = double(
                             Layout<R>::packed(centroids.frame(), f, centroids.master(j)[f]));
            const double least = low[std::size_t(j)],
                         most = coarse.highest(least, j, scan.row(f).error);
            CHECK(least <= start + value && start + value <= most);
            // Within half a step, beside what rounding may come to.
            const double seen = least + double(scan.row(f).error) * part;
            CHECK(std::abs(seen - (start + value)) <= 0x1p15 * part + start * 0x1p-19);
        }
    }
}

template <class R>
void check_centres(Size k, bool signs) {
    Random random(static_cast<std::uint64_t>(2 * k + signs));
    const Threads threads{2};
    Matrix<R> centres = centres_of<R>(k, signs, random);
    Centroids<R> centroids(centres.values.data(), k, d, Frame<R>{}, threads);
    check_values(Coarse<R>::of(centroids, threads), centroids);
    // One of the two that share words moves, then the other.
    for (const Size moved : {Size(3), Size(11)}) {
        for (Size f = 0; f < d; ++f) centres(moved, f) = R(signs ? -random.unit() : random.unit());
        centroids.move(centres.values.data(), threads);
        check_values(Coarse<R>::of(centroids, threads), centroids);
    }
}

// Kernels see the lowest scores that `lowest` tells, whatever the type of the indices is and
// wherever rows end.
template <class R, class I>
void check_kernels(Size k) {
    Random random(static_cast<std::uint64_t>(k));
    const Threads threads{1};
    const Matrix<R> centres = centres_of<R>(k, true, random);
    const Centroids<R> centroids(centres.values.data(), k, d, Frame<R>{}, threads);
    const Coarse<R>& coarse = Coarse<R>::of(centroids, threads);
    constexpr Size n = 40;
    const Csr<R, I> csr(
        Matrix<R>(n, d, [&] { return random.below(4) ? 0.0 : random.uniform(-1, 1); }));
    CoarseScan<R> scan;
    scan.load(csr.rows(), 0, n);
    std::vector<double> low(static_cast<std::size_t>(k));
    for (const Kernels<float>* table : tables<float>()) {
        std::vector<std::int32_t> label(n);
        std::vector<float> score(n), second(n);
        table->coarse_csr(&scan.row(0), n, coarse.panels(),
                          {label.data(), score.data(), second.data()});
        for (Size i = 0; i < n; ++i) {
            coarse.lowest(scan.row(i), low.data());
            std::vector<double> sorted = low;
            std::sort(sorted.begin(), sorted.end());
            CHECK(std::abs(double(score[std::size_t(i)]) - sorted[0]) <= 1e-4);
            CHECK(std::abs(double(second[std::size_t(i)]) - sorted[1]) <= 1e-4);
            CHECK(low[std::size_t(label[std::size_t(i)])] <= sorted[0] + 1e-4);
        }
    }
}

}  // namespace

// Whole words, a unit that is left over, and several panels.
constexpr Size sizes[] = {48, 40, 33, 131, 260};

TEST(values_float) {
    for (const Size k : sizes)
        for (const bool signs : {false, true}) check_centres<float>(k, signs);
}
TEST(values_double) {
    for (const Size k : sizes)
        for (const bool signs : {false, true}) check_centres<double>(k, signs);
}
TEST(kernels) {
    for (const Size k : sizes) {
        check_kernels<float, std::int32_t>(k);
        check_kernels<float, std::int64_t>(k);
        check_kernels<double, std::int32_t>(k);
        check_kernels<double, std::int64_t>(k);
    }
}
