// Bounds of the change of scores, by one table and by groups.
#include "exactmeans/assign/sparse/moving_centres.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "check.hpp"
#include "exactmeans/assign/sparse/moving_by_table.hpp"
#include "exactmeans/centres/layout_cache.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size k = 200, d = 300, n = 400;
constexpr Size far = 40, near = 60;  // centres 0..far-1 change much, the next `near` a little

template <class R>
Matrix<R> sparse_matrix(Size rows, Random& random, bool signs, double scale) {
    return Matrix<R>(rows, d, [&] {
        const double value = random.below(8) ? 0.0 : scale * random.uniform(0.1, 1.0);
        return signs && random.coin() ? -value : value;
    });
}

// Whole rows, and rows of one feature, whose bounds are the tightest: some of them so long that
// score offsets do not count.
template <class R>
Matrix<R> rows_of(Random& random, bool signs, double scale) {
    Matrix<R> x = sparse_matrix<R>(n, random, signs, scale);
    for (Size i = 0; i < n / 2; ++i)
        for (Size f = 0; f < d; ++f)
            x(i, f) = f != i % d ? R(0)
                                 : R(scale * (i % 3 ? 1.0 : 1e7) *
                                     (signs && i % 2 ? -random.unit() : random.unit()));
    return x;
}

// The score with stored numbers, exact but for a few bits of long double.
template <class R>
long double exact_score(const Centres<R>& centroids, const Matrix<R>& x, Size i, Size j) {
    long double score = static_cast<long double>(centroids.score_offset()[j]);
    for (Size f = 0; f < d; ++f)
        score += static_cast<long double>(x(i, f)) *
                 static_cast<long double>(centroids.frame().packed(f, centroids.master(j)[f]));
    return score;
}

template <class R>
void check_table(bool signs, int exponent) {
    Random random(signs ? 5 : 6);
    const Threads threads{2};
    Frame<R> frame;
    frame.exponent = exponent;
    const double scale = std::ldexp(1.0, -exponent);  // of the data
    Matrix<R> centres = sparse_matrix<R>(k, random, signs, scale);
    Centres<R> then(centres.values.data(), k, d, frame, threads);
    Centres<R> now(centres.values.data(), k, d, frame, threads);
    std::vector<std::uint32_t> packed_columns(static_cast<std::size_t>(d));
    std::iota(packed_columns.rbegin(), packed_columns.rend(), 0u);
    LayoutCache<R> layouts;
    layouts.set_packed_columns(packed_columns);
    const auto state = [&]() -> const MovingCentres<R>& {
        return *layouts.template state<MovingCentres<R>>(now, threads);
    };
    const auto move = [&] {
        for (Size j = 0; j < far + near; ++j)
            for (Size f = 0; f < d; ++f)
                if (random.coin())
                    centres(j, f) += R(scale * (j < far ? 0.5 : 1e-3) * random.uniform(-1.0, 1.0));
        now.move(centres.values.data(), threads);
    };
    CHECK(state().plan().prune == Prune::nothing);  // no centres before these
    // Few labels change, and so few rows are compared that the next plan has fewer outliers.
    const auto pass = [&] { state().record({1000, 40000, 10, 60}); };
    pass();
    move();
    CHECK(state().plan().prune == Prune::by_outliers);
    CHECK_EQ(state().outliers().k(), far + near);  // at first, all centres that moved
    pass();
    then.move(centres.values.data(), threads);
    const Size before_move = now.version();
    move();

    const MovingCentres<R>& moving = state();
    CHECK(moving.plan().prune == Prune::by_outliers);
    CHECK_EQ(moving.history().from(), before_move);
    CHECK_EQ(moving.history().version(), now.version());
    CHECK_EQ(moving.outliers().k(), Size(64));
    Size bounded = 0;
    for (Size j = 0; j < k; ++j) {
        CHECK((moving.outlier_place(j) == MovingCentres<R>::unmoved) == (j >= far + near));
        if (j < far) CHECK(moving.outlier_place(j) >= 0);
        bounded += moving.outlier_place(j) == MovingCentres<R>::bounded;
    }
    CHECK_EQ(bounded, far + near - 64);

    const Matrix<R> x = rows_of<R>(random, signs, scale);
    const Csr<R, std::int32_t> csr(x);
    Float32Rows<R> rows;
    rows.load(csr.rows(), 0, n);
    std::vector<DeltaSums> sums;
    moving.table().sum(rows.data(), n, sums);
    double closest = 0;
    for (Size i = 0; i < n; ++i)
        for (Size j = 0; j < k; ++j) {
            if (moving.outlier_place(j) != MovingCentres<R>::bounded) continue;
            const auto change = moving.table().change(sums[std::size_t(i)], rows[i].nonzeros, j);
            const long double before = exact_score(then, x, i, j),
                              after = exact_score(now, x, i, j);
            CHECK(before - after <= static_cast<long double>(change.fall));
            CHECK(after - before <= static_cast<long double>(change.rise));
            closest = std::max(closest, double(after - before) / change.rise);
        }
    CHECK(closest > 0.9);  // bounds that are not vacuous
}

}  // namespace

TEST(table_float) {
    check_table<float>(false, 0);
    check_table<float>(true, 0);
    check_table<float>(true, -40);
}
TEST(table_double) {
    check_table<double>(false, 0);
    check_table<double>(true, 0);
    check_table<double>(true, 40);
}

namespace {

// Bounds of groups hold for every centre, moved or not, over several updates.
template <class R>
void check_groups(Size centres_in_all, bool signs, int exponent) {
    Random random(static_cast<std::uint64_t>(centres_in_all + signs));
    const Threads threads{2};
    Frame<R> frame;
    frame.exponent = exponent;
    const double scale = std::ldexp(1.0, -exponent);
    Matrix<R> centres = sparse_matrix<R>(centres_in_all, random, signs, scale);
    // Some have few features.
    for (Size j = 0; j < centres_in_all; j += 3)
        for (Size f = 20; f < d; ++f) centres(j, f) = 0;
    Centres<R> now(centres.values.data(), centres_in_all, d, frame, threads);
    LayoutCache<R> layouts;
    const auto state = [&]() -> const MovingCentres<R>& {
        return *layouts.template state<MovingCentres<R>>(now, threads);
    };
    const auto move = [&](Size from, double by) {
        for (Size j = from; j < centres_in_all; ++j)
            for (Size f = 0; f < d; ++f)
                if (random.coin()) centres(j, f) += R(scale * by * random.uniform(-1.0, 1.0));
        now.move(centres.values.data(), threads);
    };
    CHECK(state().in_groups());
    CHECK(state().plan().prune == Prune::nothing);
    state().record({1000, 40000, 1000, 1000});
    move(0, 0.5);
    CHECK(state().plan().prune == Prune::nothing);  // most labels changed
    const QuantizedCentres<R>& all = state().all();
    const auto length = [&](Size j) { return now.nonzeros(j).size(); };
    for (Size a = 0; a < centres_in_all; ++a)
        for (Size b = 0; b < centres_in_all; ++b)
            if (all.group(all.place(a)) < all.group(all.place(b))) CHECK(length(a) >= length(b));

    const Matrix<R> x = rows_of<R>(random, signs, scale);
    const Csr<R, std::int32_t> csr(x);
    Float32Rows<R> rows;
    rows.load(csr.rows(), 0, n);
    std::vector<std::int32_t> own, crossed;
    std::vector<RowBounds> bounds;
    const auto score = [&](Size i, Size j) { return double(exact_score(now, x, i, j)); };
    for (Size i = 0; i < n; ++i) {
        own.push_back(std::int32_t(random.below(centres_in_all)));
        RowBounds& row = bounds.emplace_back();
        const auto above = [](double s) {
            return std::nextafter(float(s), std::numeric_limits<float>::infinity());
        };
        row.high = above(score(i, own.back()));
        for (float& low : row.low) low = std::numeric_limits<float>::infinity();
        for (Size j = 0; j < centres_in_all; ++j) {
            float& low = row.low[all.group(all.place(j))];
            if (j != own.back()) low = std::min(low, -above(-score(i, j)));
        }
    }
    double closest = 1e9;  // the rise of an upper bound, per rise of the score
    for (const Size from : {Size(0), centres_in_all / 2, centres_in_all - 1}) {
        state().record({1000, 40000, 10, 60});
        std::vector<double> before;
        for (Size i = 0; i < n; ++i) before.push_back(score(i, own[std::size_t(i)]));
        const std::vector<RowBounds> last = bounds;
        const Size before_move = now.version();
        move(from, 1e-2);
        CHECK(state().plan().prune == Prune::by_groups);
        CHECK_EQ(state().history().from(), before_move);
        CHECK_EQ(state().history().version(), now.version());
        state().groups().update(rows.data(), n, signs, own.data(), bounds.data(), crossed);
        std::size_t at = 0;
        for (Size i = 0; i < n; ++i) {
            const RowBounds& row = bounds[std::size_t(i)];
            const Size mine = own[std::size_t(i)];
            bool certain = true;
            for (Size j = 0; j < centres_in_all; ++j) {
                const float low = row.low[all.group(all.place(j))];
                if (j == mine)
                    CHECK(score(i, j) <= double(row.high));
                else
                    CHECK(score(i, j) >= double(low));
                certain = certain && (j == mine || row.high < low);
            }
            CHECK_EQ(at < crossed.size() && crossed[at] == i, !certain);
            at += !certain;
            const double rose = score(i, mine) - before[std::size_t(i)];
            if (mine < from)
                CHECK_EQ(row.high, last[std::size_t(i)].high);
            else if (rose > 1e-6 * std::abs(score(i, mine)))
                closest = std::min(closest, double(row.high - last[std::size_t(i)].high) / rose);
        }
    }
    CHECK(closest < 1.01);  // bounds that are not vacuous
}

}  // namespace

namespace {

// Tables of more features than one block, for centres whose features come and go, and for some
// that did not move.
template <class R>
void check_wide_table(const Threads& threads) {
    constexpr Size centres = 100, wide = 5000;
    constexpr std::size_t groups = QuantizedPanels::most_groups;
    Random random(11);
    std::vector<SparseVector<R>> then(centres), now(centres);
    for (Size j = 0; j < centres; ++j)
        for (Size f = 0; f < wide; ++f) {
            const R value = R(random.uniform(0.1, 1.0));
            const Size kind = j % 5 ? random.below(40) : 4 * random.below(10);
            if (kind < 8) then[std::size_t(j)].push(f, value);
            if (kind == 0 || kind == 4) now[std::size_t(j)].push(f, value);
            if (kind > 4 && kind < 12 && j % 5)
                now[std::size_t(j)].push(f, R(random.uniform(0.1, 1.0)));
        }
    for (Size j = 0; j < centres; j += 5) now[std::size_t(j)] = then[std::size_t(j)];
    Centres<R> centroids(then, wide, Frame<R>{}, threads);
    LayoutCache<R> layouts;
    const auto state = [&]() -> const MovingCentres<R>& {
        return *layouts.template state<MovingCentres<R>>(centroids, threads);
    };
    state().record({1000, 40000, 10, 60});
    centroids.move(now, threads);
    CHECK(state().plan().prune == Prune::by_groups);
    const QuantizedCentres<R>& all = state().all();
    for (Size f = 0; f < wide; ++f) {
        double most[2 * groups] = {};
        for (Size j = 0; j < centres; ++j) {
            const double rose =
                double(then[std::size_t(j)].at(f)) - double(now[std::size_t(j)].at(f));
            const std::size_t g = std::size_t(all.group(all.place(j)));
            most[g] = std::max(most[g], -rose);
            most[groups + g] = std::max(most[groups + g], rose);
        }
        for (std::size_t g = 0; g < 2 * groups; ++g) {
            const std::uint32_t half = state().groups().deltas().table[f].half[g];
            const double stored = double(std::bit_cast<float>(half << 16));
            CHECK(stored >= most[g] && stored <= most[g] * 1.01 + 1e-7);
        }
    }
}

}  // namespace

TEST(wide_tables) {
    for (const int n_jobs : {1, 2, 3}) {
        check_wide_table<float>(Threads{n_jobs});
        check_wide_table<double>(Threads{n_jobs});
    }
}

TEST(groups_float) {
    for (const Size of : {33, 64, 100, 192}) {
        check_groups<float>(of, false, 0);
        check_groups<float>(of, true, 0);
    }
    check_groups<float>(100, true, -40);
}
TEST(groups_double) {
    check_groups<double>(100, false, 0);
    check_groups<double>(100, true, 40);
}

TEST(all_codes_keep_within_the_scratch_limit) {
    const Size spare = QuantizedCentres<double>::bytes_per_feature(64);
    for (const Size more : {spare, spare - 1}) {
        Random random(8);
        const Threads threads{2};
        Matrix<double> centres = sparse_matrix<double>(k, random, false, 1.0);
        Centres<double> now(centres.values.data(), k, d, Frame<double>{}, threads);
        LayoutCache<double> layouts;
        layouts.set_scratch_limit(d * (QuantizedCentres<double>::bytes_per_feature(k) + more));
        layouts.state<MovingCentres<double>>(now, threads)->record({1000, 40000, 10, 60});
        for (Size j = 0; j < far + near; ++j) centres(j, 0) += 0.5;
        now.move(centres.values.data(), threads);
        const auto moving = layouts.state<MovingCentres<double>>(now, threads);
        CHECK(moving->plan().prune == (more == spare ? Prune::by_outliers : Prune::by_table));
        CHECK_EQ(moving->outliers().k(), more == spare ? Size(64) : Size(0));
    }
}

TEST(a_table_without_the_filter_needs_remembered_centres) {
    Random random(9);
    const Threads threads{2};
    Matrix<double> centres = sparse_matrix<double>(k, random, false, 1.0);
    Centres<double> now(centres.values.data(), k, d, Frame<double>{}, threads);
    LayoutCache<double> layouts;
    const auto after = [&](Size nonzeros) -> const TabulatedCentres<double>& {
        layouts.state<TabulatedCentres<double>>(now, threads)->record({1000, nonzeros, 10, 10});
        for (Size j = 0; j < near; ++j) centres(j, j) += 1e-3;
        now.move(centres.values.data(), threads);
        return *layouts.state<TabulatedCentres<double>>(now, threads);
    };
    const Size many = 500 * d;
    CHECK(after(many).plan().prune == Prune::nothing);  // the first pass remembered none
    const Size before_move = now.version();
    const TabulatedCentres<double>& table = after(many);
    CHECK(table.plan().prune == Prune::by_table);
    CHECK_EQ(table.history().from(), before_move);
    CHECK_EQ(table.history().version(), now.version());
    for (Size j = 0; j < k; ++j) CHECK_EQ(table.history().moved(j), j < near);
    CHECK_EQ(table.table().table().size(), std::size_t(d));
    CHECK(after(many - 1).plan().prune == Prune::nothing);
    CHECK(after(many).plan().prune == Prune::nothing);
    CHECK_EQ(table.history().from(), Size(-1));
    CHECK(after(many).plan().prune == Prune::by_table);
}
