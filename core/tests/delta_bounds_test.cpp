#include "exactmeans/assign/sparse/grouped_delta_bounds.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "check.hpp"
#include "exactmeans/centres/layout_cache.hpp"
#include "exactmeans/filter/quantized_filter.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size k = 200, d = 300, n = 400;
constexpr Size far = 40, near = 60;  // centres 0..far-1 go far, the next up to far+near a little

template <class R>
Matrix<R> sparse_matrix(Size rows, Random& random, bool signs, double scale) {
    return Matrix<R>(rows, d, [&] {
        const double value = random.below(8) ? 0.0 : scale * random.uniform(0.1, 1.0);
        return signs && random.coin() ? -value : value;
    });
}

// Whole rows, and rows of one feature, whose bounds leave the least room: some of them so long that
// what is left for half the centres' norms does not count.
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
void check_reach(bool signs, int exponent) {
    Random random(signs ? 5 : 6);
    const Threads threads{2};
    Frame<R> frame;
    frame.exponent = exponent;
    const double scale = std::ldexp(1.0, -exponent);  // of the data
    Matrix<R> centres = sparse_matrix<R>(k, random, signs, scale);
    Centres<R> then(centres.values.data(), k, d, frame, threads);
    Centres<R> now(centres.values.data(), k, d, frame, threads);
    LayoutCache<R> layouts;
    std::vector<std::uint32_t> packed_columns(static_cast<std::size_t>(d));
    std::iota(packed_columns.rbegin(), packed_columns.rend(), 0u);
    layouts.set_packed_columns(packed_columns);
    const auto shifts = [&]() -> const GroupedDeltaBounds<R>& {
        return *layouts.template state<GroupedDeltaBounds<R>>(now, threads);
    };
    CHECK(!shifts().sifts());  // nothing is known of before
    // Passes over calm rows, of which so few are left over that fewer centres are wild next time.
    const auto pass = [&] { shifts().record({1000, 40000, 10, 60}); };
    pass();
    for (Size j = 0; j < far + near; ++j)
        for (Size f = 0; f < d; ++f)
            if (random.coin())
                centres(j, f) += R(scale * (j < far ? 0.5 : 1e-3) * random.uniform(-1.0, 1.0));
    now.move(centres.values.data(), threads);
    CHECK(shifts().sifts());
    CHECK_EQ(shifts().wild().k(), far + near);  // it begins with all of them
    pass();
    then.move(centres.values.data(), threads);
    for (Size j = 0; j < far + near; ++j)
        for (Size f = 0; f < d; ++f)
            if (random.coin())
                centres(j, f) += R(scale * (j < far ? 0.5 : 1e-3) * random.uniform(-1.0, 1.0));
    const Size before_move = now.version();
    now.move(centres.values.data(), threads);

    const GroupedDeltaBounds<R>& seen = shifts();
    CHECK(seen.sifts());
    CHECK_EQ(seen.from(), before_move);
    CHECK_EQ(seen.version(), now.version());
    CHECK_EQ(seen.wild().k(), Size(64));
    Size tame = 0;
    for (Size j = 0; j < k; ++j) {
        CHECK((seen.place(j) == GroupedDeltaBounds<R>::still) == (j >= far + near));
        if (j < far) CHECK(seen.place(j) >= 0);
        tame += seen.place(j) == GroupedDeltaBounds<R>::tame;
    }
    CHECK_EQ(tame, far + near - 64);

    const Matrix<R> x = rows_of<R>(random, signs, scale);
    const Csr<R, std::int32_t> csr(x);
    const auto rows = csr.rows();
    QuantizedFilter<R> scan;
    scan.take(rows, 0, n);
    scan.reach(seen.table());
    double closest = 0;
    for (Size i = 0; i < n; ++i)
        for (Size j = 0; j < k; ++j) {
            if (seen.place(j) != GroupedDeltaBounds<R>::tame) continue;
            const auto reach = seen.reach(scan.reached(i), scan.given(i).nonzeros, j);
            const long double before = exact_score(then, x, i, j),
                              after = exact_score(now, x, i, j);
            CHECK(before - after <= static_cast<long double>(reach.fall));
            CHECK(after - before <= static_cast<long double>(reach.rise));
            closest = std::max(closest, double(after - before) / reach.rise);
        }
    CHECK(closest > 0.9);  // bounds that are not vacuous
}

}  // namespace

TEST(reach_float) {
    check_reach<float>(false, 0);
    check_reach<float>(true, 0);
    check_reach<float>(true, -40);
}
TEST(reach_double) {
    check_reach<double>(false, 0);
    check_reach<double>(true, 0);
    check_reach<double>(true, 40);
}

namespace {

// Bounds of groups hold for every centre, whether it moved or not, and follow it again and again.
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
    const auto shifts = [&]() -> const GroupedDeltaBounds<R>& {
        return *layouts.template state<GroupedDeltaBounds<R>>(now, threads);
    };
    const auto move = [&](Size from, double by) {
        for (Size j = from; j < centres_in_all; ++j)
            for (Size f = 0; f < d; ++f)
                if (random.coin()) centres(j, f) += R(scale * by * random.uniform(-1.0, 1.0));
        now.move(centres.values.data(), threads);
    };
    CHECK(shifts().in_groups());
    CHECK(!shifts().sifts());
    shifts().record({1000, 40000, 1000, 1000});
    move(0, 0.5);
    CHECK(!shifts().sifts());  // most labels changed
    const QuantizedCentres<R>& all = shifts().all();
    const auto length = [&](Size j) { return now.nonzeros(j).size(); };
    for (Size a = 0; a < centres_in_all; ++a)
        for (Size b = 0; b < centres_in_all; ++b)
            if (all.group(all.place(a)) < all.group(all.place(b))) CHECK(length(a) >= length(b));

    const Matrix<R> x = rows_of<R>(random, signs, scale);
    const Csr<R, std::int32_t> csr(x);
    QuantizedFilter<R> scan;
    scan.take(csr.rows(), 0, n);
    std::vector<std::int32_t> own, left;
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
    double closest = 1e9;  // of bounds to what they bound, beside how far they went
    for (const Size from : {Size(0), centres_in_all / 2, centres_in_all - 1}) {
        shifts().record({1000, 40000, 10, 60});
        std::vector<double> before;
        for (Size i = 0; i < n; ++i) before.push_back(score(i, own[std::size_t(i)]));
        const std::vector<RowBounds> last = bounds;
        const Size before_move = now.version();
        move(from, 1e-2);
        CHECK(shifts().sifts());
        CHECK_EQ(shifts().from(), before_move);
        CHECK_EQ(shifts().version(), now.version());
        scan.follow(signs, shifts().groups(), own.data(), bounds.data(), left);
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
            CHECK_EQ(at < left.size() && left[at] == i, !certain);
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

// Tables are made a block of features at a time: here of several, for centres whose features come
// and go, and for some that stand still.
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
    const auto shifts = [&]() -> const GroupedDeltaBounds<R>& {
        return *layouts.template state<GroupedDeltaBounds<R>>(centroids, threads);
    };
    shifts().record({1000, 40000, 10, 60});
    centroids.move(now, threads);
    CHECK(shifts().sifts() && shifts().in_groups());
    const QuantizedCentres<R>& all = shifts().all();
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
            const std::uint32_t half = shifts().groups().table[f].half[g];
            const double told = double(std::bit_cast<float>(half << 16));
            CHECK(told >= most[g] && told <= most[g] * 1.01 + 1e-7);
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

TEST(groups_are_of_use_while_few_labels_change_and_few_rows_are_left) {
    constexpr Size few = 100;
    Random random(9);
    const Threads threads{2};
    Matrix<double> centres = sparse_matrix<double>(few, random, false, 1.0);
    Centres<double> now(centres.values.data(), few, d, Frame<double>{}, threads);
    LayoutCache<double> layouts;
    const auto after = [&](Size changed, Size left) {
        const auto seen = [&]() -> const GroupedDeltaBounds<double>& {
            return *layouts.state<GroupedDeltaBounds<double>>(now, threads);
        };
        seen().record({1000, 40000, changed, left});
        for (Size j = 0; j < few; ++j) centres(j, j) += 1e-3;
        now.move(centres.values.data(), threads);
        return seen().sifts();
    };
    CHECK(!after(251, 1000));
    CHECK(after(250, 1000));
    CHECK(after(250, 600));
    // What leaves most rows open is tried again after a pass over all of them, then after two.
    CHECK(!after(10, 800));
    CHECK(after(10, 1000));
    CHECK(!after(10, 800));
    CHECK(!after(10, 1000));
    CHECK(after(10, 1000));
}

TEST(both_layouts_keep_within_the_room) {
    const Size room = QuantizedCentres<double>::bytes(64);
    for (const Size more : {room, room - 1}) {
        Random random(8);
        const Threads threads{2};
        Matrix<double> centres = sparse_matrix<double>(k, random, false, 1.0);
        Centres<double> now(centres.values.data(), k, d, Frame<double>{}, threads);
        LayoutCache<double> layouts;
        layouts.set_room(d * (QuantizedCentres<double>::bytes(k) + more));
        layouts.state<GroupedDeltaBounds<double>>(now, threads)->record({1000, 40000, 10, 60});
        for (Size j = 0; j < far + near; ++j) centres(j, 0) += 0.5;
        now.move(centres.values.data(), threads);
        const auto shifts = layouts.state<GroupedDeltaBounds<double>>(now, threads);
        CHECK(shifts->sifts());  // by a table alone, if need be
        CHECK_EQ(shifts->wild().k(), more == room ? Size(64) : Size(0));
    }
}

TEST(a_table_alone_is_made_where_it_pays) {
    Random random(9);
    const Threads threads{2};
    Matrix<double> centres = sparse_matrix<double>(k, random, false, 1.0);
    Centres<double> now(centres.values.data(), k, d, Frame<double>{}, threads);
    LayoutCache<double> layouts;
    const auto after = [&](Size nonzeros, Size changed, Size left) -> const DeltaBounds<double>& {
        const auto seen = [&]() -> const DeltaBounds<double>& {
            return *layouts.state<DeltaBounds<double>>(now, threads);
        };
        seen().record({1000, nonzeros, changed, left});
        for (Size j = 0; j < near; ++j) centres(j, j) += 1e-3;
        now.move(centres.values.data(), threads);
        return seen();
    };
    const Size many = 500 * d;
    CHECK(!after(many, 1000, 1000).sifts());
    CHECK(!after(many, 126, 1000).sifts());
    CHECK(!after(many, 31, 1000).sifts());  // the centres before were not worth remembering
    const Size before_move = now.version();
    const DeltaBounds<double>& steps = after(many, 31, 1000);
    CHECK(steps.sifts());
    CHECK_EQ(steps.from(), before_move);
    CHECK_EQ(steps.version(), now.version());
    for (Size j = 0; j < k; ++j) CHECK_EQ(steps.moved(j), j < near);
    CHECK_EQ(steps.table().size(), std::size_t(d));
    CHECK(!after(many, 32, 600).sifts());  // too many labels change
    CHECK(after(many, 31, 1000).sifts());
    CHECK(after(many, 31, 600).sifts());
    // What leaves most rows open is not tried again for a pass, and then for two.
    CHECK(!after(many, 10, 601).sifts());
    CHECK(!after(many, 10, 1000).sifts());
    CHECK(after(many, 10, 1000).sifts());
    CHECK(!after(many, 10, 1000).sifts());
    CHECK(!after(many, 10, 1000).sifts());
    CHECK(!after(many, 10, 1000).sifts());
    CHECK(after(many, 10, 1000).sifts());
    CHECK(!after(many - 1, 10, 10).sifts());  // centres are long beside all rows
    CHECK(!after(many, 10, 10).sifts());      // and were not remembered
    CHECK_EQ(steps.from(), Size(-1));
    CHECK(after(many, 10, 10).sifts());
}

TEST(a_table_is_not_longer_than_what_looks_at_it) {
    const Threads threads{1};
    for (const Size more : {0, 1}) {
        const Size columns = 2000 + more;
        std::vector<SparseVector<double>> centres(static_cast<std::size_t>(k));
        for (Size j = 0; j < k; ++j) centres[std::size_t(j)].push(j, 1.0);
        Centres<double> now(centres, columns, Frame<double>{}, threads);
        LayoutCache<double> layouts;
        for (int pass = 0; pass < 2; ++pass) {
            layouts.state<DeltaBounds<double>>(now, threads)->record({1000, 500, 10, 10});
            centres[0].value[0] += 0.5;
            now.move(centres, threads);
        }
        CHECK_EQ(layouts.state<DeltaBounds<double>>(now, threads)->sifts(), more == 0);
    }
}
