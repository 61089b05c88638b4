// L1 scores of every instruction set that this CPU runs, against the definition in scalar code, bit
// for bit; and labels of a model against long double.
#include <limits>

#include "check.hpp"
#include "exactmeans/centres/layout_cache.hpp"
#include "exactmeans/evaluate/distances.hpp"
#include "isas.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

template <class R>
Centres<R> centroids_of(const Matrix<R>& centres) {
    return Centres<R>(centres.values.data(), centres.n, centres.d,
                      Frame<R>{0, {}, Metric::manhattan}, Threads{});
}

// The sum of terms in order; float chains of more than 4096 terms in pieces of 256.
template <class R>
R chain(const std::vector<R>& terms) {
    const auto sum = [&](std::size_t begin, std::size_t end) {
        R total = 0;
        for (std::size_t t = begin; t < end; ++t) total = total + terms[t];
        return total;
    };
    if (sizeof(R) == 8 || terms.size() <= 4096) return sum(0, terms.size());
    double total = 0;
    for (std::size_t begin = 0; begin < terms.size(); begin += 256)
        total += double(sum(begin, std::min(terms.size(), begin + 256)));
    return R(total);
}

// Dense rows sum |x - c|; CSR rows sum |x - c| - |c| over stored entries and add the sum of all |c|
// at the end.
template <class R>
R canonical_score(const Matrix<R>& x, Size i, const Matrix<R>& centres, Size j, bool stored) {
    std::vector<R> terms;
    long double all = 0;
    for (Size f = 0; f < x.d; ++f) {
        const R value = x(i, f), c = centres(j, f);
        all += std::fabs(static_cast<long double>(c));
        if (!stored)
            terms.push_back(std::fabs(R(value - c)));
        else if (value != 0)
            terms.push_back(R(std::fabs(R(value - c)) - std::fabs(c)));
    }
    return chain(terms) + (stored ? R(double(all)) : R(0));
}

template <class R>
struct Wanted {
    std::vector<std::int32_t> label;
    std::vector<R> score, every;

    Wanted(const Matrix<R>& x, const Matrix<R>& centres, bool stored) {
        for (Size i = 0; i < x.n; ++i) {
            R best = std::numeric_limits<R>::infinity();
            std::int32_t nearest = 0;
            for (Size j = 0; j < centres.n; ++j) {
                every.push_back(canonical_score(x, i, centres, j, stored));
                if (every.back() < best) best = every.back(), nearest = std::int32_t(j);
            }
            label.push_back(nearest);
            score.push_back(best);
        }
    }
};

template <class R, class Nearby, class Scores>
void check_run(const Wanted<R>& wanted, Size n, Size k, Nearby nearby, Scores scores) {
    std::vector<std::int32_t> label(static_cast<std::size_t>(n), -7);
    std::vector<R> score(label.size()), every(static_cast<std::size_t>(n * k));
    nearby(Nearest<R>{label.data(), score.data(), nullptr});
    scores(every.data());
    Size wrong = 0;
    for (std::size_t i = 0; i < label.size(); ++i)
        wrong += label[i] != wanted.label[i] || !same_bits(score[i], wanted.score[i]);
    for (std::size_t t = 0; t < every.size(); ++t) wrong += !same_bits(every[t], wanted.every[t]);
    CHECK_EQ(wrong, 0);
}

template <class R>
void check_dense(const Matrix<R>& x, const Matrix<R>& centres) {
    const Centres<R> centroids = centroids_of(centres);
    const HeldPanels<R> layout = LayoutCache<R>().panels(centroids, true, Threads{});
    const Wanted<R> wanted(x, centres, false);
    std::vector<const R*> rows;
    for (Size i = 0; i < x.n; ++i) rows.push_back(x.row(i));
    for (const Isa* table : isas())
        for (const Size n : {Size(1), Size(5), x.n})
            check_run(
                wanted, n, centres.n,
                [&](const Nearest<R>& out) {
                    table->scores<R>().nearest_dense_l1(rows.data(), n, nullptr, layout, out);
                },
                [&](R* out) { table->scores<R>().scores_dense_l1(rows.data(), n, layout, out); });
}

template <class R>
void check_csr(const Matrix<R>& x, const Matrix<R>& centres, bool renumbered) {
    Centres<R> centroids = centroids_of(centres);
    std::vector<std::uint32_t> packed_columns(static_cast<std::size_t>(x.d));
    for (Size f = 0; f < x.d; ++f) packed_columns[f] = std::uint32_t(renumbered ? x.d - 1 - f : f);
    LayoutCache<R> layouts;
    if (renumbered) layouts.set_packed_columns(packed_columns);
    const HeldPanels<R> layout = layouts.panels(centroids, false, Threads{});
    const Wanted<R> wanted(x, centres, true);
    const Csr<R, std::int32_t> sparse(x);
    std::vector<std::uint32_t> places;
    for (const std::int32_t f : sparse.indices) places.push_back(packed_columns[f]);
    std::vector<PackedCsrRow<R>> rows;
    for (Size i = 0; i < x.n; ++i)
        rows.push_back({places.data() + sparse.offsets[i], sparse.data.data() + sparse.offsets[i],
                        Size(sparse.offsets[i + 1] - sparse.offsets[i])});
    for (const Isa* table : isas())
        for (const Size n : {Size(1), Size(5), x.n})
            check_run(
                wanted, n, centres.n,
                [&](const Nearest<R>& out) {
                    table->scores<R>().nearest_csr_l1(rows.data(), n, layout, out);
                },
                [&](R* out) { table->scores<R>().scores_csr_l1(rows.data(), n, layout, out); });
}

template <class R>
void check_all() {
    Random random(sizeof(R));
    for (const Size d : {1, 2, 3, 7, 8, 17, 54, 130})
        for (const Size k : {1, 2, 7, 8, 9, 17, 33, 113}) {
            const Matrix<R> centres(k, d, [&] { return random.coin() ? random.normal() : 0.0; });
            const Matrix<R> x(29, d, [&] { return random.unit() < 0.4 ? random.normal() : 0.0; });
            check_dense(x, centres);
            check_csr(x, centres, false);
            check_csr(x, centres, true);
            // Small integers cause many ties, which the first centre wins.
            const Matrix<R> whole(k, d, [&] { return double(random.between(-1, 1)); });
            const Matrix<R> steps(29, d, [&] { return double(random.between(-2, 2)); });
            check_dense(steps, whole);
            check_csr(steps, whole, false);
        }
}

template <class Rows, class R>
void check_costs(const Rows& rows, const Matrix<R>& x, const Matrix<R>& centres) {
    const Points<R> points(centres.values.data(), centres.n, centres.d, 0, Metric::manhattan);
    for (Size i = 0; i < x.n; ++i)
        for (Size j = 0; j < centres.n; ++j) {
            long double wanted = 0, size = 0;
            for (Size f = 0; f < x.d; ++f) {
                wanted += std::fabs(static_cast<long double>(x(i, f)) - centres(j, f));
                size += std::fabs(static_cast<long double>(centres(j, f)));
            }
            const long double got = cost(rows, i, points, j);
            CHECK(std::fabs(got - wanted) <= 0x1p-51L * wanted + 0x1p-60L * size);
        }
}

}  // namespace

TEST(scores_float) { check_all<float>(); }
TEST(scores_double) { check_all<double>(); }

TEST(long_float_chains_are_split) {
    Random random(3);
    for (const Size d : {4096, 4097, 5000}) {
        const Matrix<float> centres(9, d, [&] { return random.normal(); });
        const Matrix<float> x(6, d, [&] { return random.normal(); });
        check_dense(x, centres);
        check_csr(x, centres, true);
    }
}

TEST(distances_are_those_of_long_double) {
    Random random(4);
    const Matrix<double> x(40, 30, [&] { return random.unit() < 0.3 ? random.normal() : 0.0; });
    Matrix<double> centres(5, 30, [&] { return random.normal(); });
    for (Size f = 0; f < 30; ++f) centres(4, f) = x(7, f);
    check_costs(x.rows(), x, centres);
    const Csr<double, std::int64_t> sparse(x);
    check_costs(sparse.rows(), x, centres);
    const Points<double> points(centres.values.data(), 5, 30, 0, Metric::manhattan);
    CHECK_EQ(cost(sparse.rows(), 7, points, 4), 0.0);
    CHECK_EQ(cost(x.rows(), 7, points, 4), 0.0);
}
