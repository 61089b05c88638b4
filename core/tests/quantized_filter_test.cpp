#include "exactmeans/filter/quantized_centres.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "check.hpp"
#include "exactmeans/centres/layout_cache.hpp"
#include "exactmeans/filter/quantized_filter.hpp"
#include "isas.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size d = 50;
// A unit that is not full, several, and several panels.
constexpr Size sizes[] = {33, 48, 64, 131, 260};

template <class R>
Matrix<R> centres_of(Size k, bool signs, Random& random) {
    return Matrix<R>(k, d, [&] {
        const double value = random.below(3) ? std::pow(random.unit(), 3) : 0.0;
        return signs && random.coin() ? -value : value;
    });
}
template <class R>
std::vector<SparseVector<R>> sparse_of(const Matrix<R>& centres) {
    std::vector<SparseVector<R>> out(static_cast<std::size_t>(centres.n));
    for (Size j = 0; j < centres.n; ++j)
        for (Size f = 0; f < d; ++f)
            if (centres(j, f) != 0) out[std::size_t(j)].push(f, centres(j, f));
    return out;
}

// Rows of one feature each, which leave the least room for errors, and whole ones.
template <class R>
Matrix<R> rows_of(Size n, bool signs, Random& random) {
    Matrix<R> x(n, d);
    for (Size i = 0; i < n; ++i)
        for (Size f = 0; f < d; ++f) {
            const bool has = i < d ? f == i : random.below(4) == 0;
            x(i, f) = R(has ? (signs && random.coin() ? -1 : 1) * random.uniform(0.1, 1) : 0);
        }
    return x;
}

template <class R>
std::shared_ptr<const QuantizedCentres<R>> quantized(const Centres<R>& centroids,
                                                     const Threads& threads) {
    return LayoutCache<R>().template get<QuantizedCentres<R>>(centroids, false, threads);
}

// The score with stored numbers, exact but for a few bits of long double.
template <class R>
long double exact_score(const Centres<R>& centroids, const Matrix<R>& x, Size i, Size j) {
    long double score = static_cast<long double>(centroids.score_offset()[j]);
    const SparseVector<R> centre = centroids.nonzeros(j);
    for (Size f = 0; f < d; ++f)
        score += static_cast<long double>(x(i, f)) *
                 static_cast<long double>(centroids.frame().packed(f, centre.at(f)));
    return score;
}

// The centre with the lowest canonical score, the first of several.
template <class R, class Row>
Size nearest_of(const Centres<R>& centroids, const Row& row) {
    CanonicalScore<R> score_of;
    Size best = 0;
    R least = std::numeric_limits<R>::infinity();
    for (Size j = 0; j < centroids.k(); ++j) {
        const R score = score_of(centroids, row, j);
        if (score < least) {
            least = score;
            best = j;
        }
    }
    return best;
}

template <class R, class I>
QuantizedFilter<R> scan_of(const Csr<R, I>& csr, const QuantizedCentres<R>& coarse) {
    QuantizedFilter<R> scan;
    scan.take(csr.rows(), 0, csr.n);
    scan.get_ready(coarse);
    return scan;
}

// Rows that are taken one after the other or from all over are those of the matrix, rounded to
// float32, and readable on behind their ends.
template <class R, class I>
void check_taken(Random& random) {
    constexpr Size n = 40;
    const Csr<R, I> csr(rows_of<R>(n, true, random));
    const CsrRows<R, I> rows = csr.rows();
    const auto is_row = [&](const PackedCsrRow<float>& taken, Size i) {
        const auto row = rows.row(i);
        CHECK(taken.nonzeros == row.nonzeros);
        for (Size t = 0; t < row.nonzeros; ++t) {
            CHECK(Size(taken.index[t]) == Size(row.index[t]));
            CHECK(taken.value[t] == float(row.value[t]));
        }
        for (Size t = row.nonzeros; t < row.nonzeros + readable_past_row; ++t)
            CHECK(Size(taken.index[t]) < d && std::isfinite(taken.value[t]));
    };
    QuantizedFilter<R> scan;
    for (const Size begin : {Size(0), Size(7), n - 1})
        for (Size end = begin + 1; end <= n; ++end) {
            scan.take(rows, begin, end);
            for (Size i = begin; i < end; ++i) is_row(scan.given(i - begin), i);
        }
    scan.take_some(rows, n, [](Size t) { return n - 1 - t; });
    for (Size t = 0; t < n; ++t) is_row(scan.given(t), n - 1 - t);
}

// Every score is seen within its bounds, by the first bits in the kernels of each instruction set
// and by all of them.
template <class R>
void check_scores(const QuantizedCentres<R>& coarse, const Centres<R>& centroids, bool signs,
                  Random& random) {
    constexpr Size n = d + 20;
    const Size k = centroids.k();
    const Matrix<R> x = rows_of<R>(n, signs, random);
    const Csr<R, std::int32_t> csr(x);
    const QuantizedFilter<R> scan = scan_of(csr, coarse);
    const QuantizedPanels panels = coarse.panels();
    const float inf = std::numeric_limits<float>::infinity();
    std::vector<std::int32_t> list(static_cast<std::size_t>(QuantizedPanels::padded(k)));
    for (const Isa* table : isas())
        for (Size i = 0; i < n; ++i) {
            const auto is_below = [&](Size p, Size place, double limit, bool up) {
                const float most = std::nextafter(float(limit), up ? inf : -inf);
                float others[] = {inf, inf, inf, inf};
                const Size count = table->quantized.places_below(scan.ready(i), panels, p, most,
                                                                 list.data(), others);
                for (const float other : others) CHECK(other > most);
                return std::find(list.data(), list.data() + count, std::int32_t(place)) !=
                       list.data() + count;
            };
            for (Size p = 0; p < panels.count(); ++p) {
                const QuantizedPanels::Panel panel = panels.panel(p);
                for (Size at = panel.first; at < panel.first + panel.width(); ++at) {
                    const Size j = coarse.centre(at);
                    if (j == QuantizedCentres<R>::none) continue;
                    const double exact = double(exact_score(centroids, x, i, j)),
                                 seen = exact - scan.bound(i).offset;
                    CHECK(is_below(p, at, seen, true));
                    CHECK(!is_below(
                        p, at, seen - scan.bound(i).width - coarse.score_offset_slack(at), false));
                }
            }
        }
    for (Size i = 0; i < n; ++i) {
        const auto row = csr.rows().row(i);
        std::vector<double> sized;
        std::vector<std::uint32_t> packed_columns;
        for (Size t = 0; t < row.nonzeros; ++t) {
            sized.push_back(double(row.value[t]) *
                            double(coarse.steps()[std::size_t(row.index[t])]));
            packed_columns.push_back(std::uint32_t(coarse.packed_column(Size(row.index[t]))));
        }
        for (Size j = 0; j < k; ++j) {
            const double exact = double(exact_score(centroids, x, i, j));
            const Size at = coarse.place(j);
            CHECK_EQ(coarse.centre(at), j);
            CHECK(std::abs(coarse.closer(sized.data(), packed_columns.data(), row.nonzeros, at) -
                           exact) <= scan.bound(i).closer + coarse.score_offset_slack(at));
            // That is a fiftieth of the first look's room at most, beside what rounding comes to.
            CHECK(scan.bound(i).closer * 50 <=
                  scan.bound(i).width + coarse.largest_score_offset() * 0x1p-16);
        }
    }
}

template <class R>
void check_centres(Size k, bool signs) {
    Random random(static_cast<std::uint64_t>(2 * k + signs));
    const Threads threads{2};
    const Matrix<R> centres = centres_of<R>(k, signs, random);
    const Centres<R> dense(centres.values.data(), k, d, Frame<R>{}, threads),
        sparse(sparse_of(centres), d, Frame<R>{}, threads);
    check_scores(*quantized(dense, threads), dense, signs, random);
    check_scores(*quantized(sparse, threads), sparse, signs, random);
}

// Centres that moved are put into the layout one by one: of two that share words one, the other, or
// both; with features that come and go, and values that grow beyond what steps were made for, again
// and again.
template <class R>
void check_patches(Size k, bool signs) {
    Random random(static_cast<std::uint64_t>(3 * k + signs));
    const Threads threads{2};
    Matrix<R> centres = centres_of<R>(k, signs, random);
    Centres<R> centroids(sparse_of(centres), d, Frame<R>{}, threads);
    QuantizedCentres<R> coarse(centroids, std::make_shared<LayoutSettings>(), false);
    coarse.update(centroids, threads);
    const std::vector<float> before = coarse.steps();
    for (int round = 0; round < 9; ++round) {
        std::vector<SparseVector<R>> then;
        for (Size j = 0; j < k; ++j) then.push_back(centroids.nonzeros(j));
        const std::vector<std::vector<Size>> choices = {{3}, {35 % k}, {3, 35 % k, k - 1}};
        const std::vector<Size>& moved = choices[std::size_t(round % 3)];
        for (const Size j : moved)
            for (Size f = 0; f < d; ++f) {
                if (random.below(3) == 0) centres(j, f) = R(0);
                if (random.below(3) == 0)
                    centres(j, f) =
                        R((f < 4 ? 1.5 * double(round + 1) : 0.5) * random.uniform(0.5, 1));
            }
        centroids.move(sparse_of(centres), threads);
        coarse.update(centroids, moved, then, threads);
        check_scores(coarse, centroids, signs, random);
    }
    Size grown = 0;
    for (std::size_t f = 0; f < before.size(); ++f) {
        CHECK(coarse.steps()[f] >= before[f]);  // it was not packed anew
        grown += coarse.steps()[f] > before[f];
    }
    CHECK(grown >= 4);
    // Now there are values of a sign that steps were not made for, or more centres than are worth
    // patches.
    std::vector<SparseVector<R>> then;
    for (Size j = 0; j < k; ++j) then.push_back(centroids.nonzeros(j));
    std::vector<Size> moved{5};
    for (Size j = 6; signs && j < k; ++j) moved.push_back(j);
    for (const Size j : moved) centres(j, 7) = R(signs ? 0.25 : -0.25);
    centroids.move(sparse_of(centres), threads);
    coarse.update(centroids, moved, then, threads);
    check_scores(coarse, centroids, true, random);
    if (!signs) CHECK_EQ(coarse.zero(), 0.0);
}

// All instruction sets make the same of rows and find the same, whatever the type of the indices is
// and wherever rows end.
template <class R, class I>
void check_kernels(Size k) {
    Random random(static_cast<std::uint64_t>(k));
    const Threads threads{1};
    const Matrix<R> centres = centres_of<R>(k, true, random);
    const Centres<R> centroids(centres.values.data(), k, d, Frame<R>{}, threads);
    const auto held = quantized(centroids, threads);
    const QuantizedCentres<R>& coarse = *held;
    constexpr Size n = 40;
    const Csr<R, I> csr(
        Matrix<R>(n, d, [&] { return random.below(4) ? 0.0 : random.uniform(-1, 1); }));
    QuantizedFilter<R> scan = scan_of(csr, coarse);
    const Size panels = coarse.panels().count(), groups = coarse.panels().groups();
    std::vector<float> reaches;  // two halves each
    for (const float step : coarse.steps()) {
        const auto half = [](float x) { return std::bit_cast<std::uint32_t>(x) >> 16; };
        reaches.push_back(std::bit_cast<float>(half(step) << 16 | half(3 * step)));
    }
    // What is read next decides nothing: a range longer than a line for each row, and a short one.
    const PrefetchHint next{{{csr.data.data(), Size(csr.data.size() * sizeof(R))}, {&n, 1}}};
    // Bounds that follow centres, with entries of both signs and with none below 0; every tenth row
    // has a centre that stands still.
    std::vector<GroupDeltaTable> steps;
    for (Size f = 0; f < d; ++f) {
        GroupDeltaTable& own = steps.emplace_back();
        for (auto& half : own.half) half = std::uint16_t(0x3a00 + random.below(256));
    }
    const std::vector<GroupDeltas::Centre> moved{{0.25f, 0}, {-0.5f, 3}, {0, -1}};
    const GroupDeltas shifts{steps.data(), moved.data(), {1, 2, 3, 4}, {5, 6, 7, 8}, 0x1p-120f};
    std::vector<std::int32_t> own_centre;
    for (Size i = 0; i < n; ++i) own_centre.push_back(std::int32_t(i % 10 ? i % 2 : 2));
    std::vector<std::int32_t> first_label;
    std::vector<float> first;
    std::vector<std::int16_t> first_values;
    for (const Isa* table : isas()) {
        std::vector<std::int32_t> label(static_cast<std::size_t>(n * groups));
        std::vector<float> score(label.size()), second(label.size()), lows(std::size_t(n * panels)),
            all;
        std::vector<std::int16_t> values(csr.data.size() + readable_past_row);
        std::vector<float> sized(d + readable_past_row);
        std::vector<QuantizedRow> rows;
        std::int16_t* to = values.data();
        for (Size i = 0; i < n; ++i) {
            rows.push_back({scan.given(i).index, to, scan.given(i).nonzeros, 0, 0, 0});
            to += scan.given(i).nonzeros;
        }
        table->quantized.quantize_rows(&scan.given(0), n, coarse.steps().data(), sized.data(),
                                       rows.data());
        values.resize(csr.data.size());
        table->quantized.nearest(rows.data(), n, coarse.panels(),
                                 {label.data(), score.data(), second.data()}, lows.data(), next);
        std::vector<DeltaSums> seen(n);
        table->quantized.reach(&scan.given(0), n, reaches.data(), seen.data());
        for (const bool any_below : {false, true}) {
            std::vector<RowBounds> bounds(n, RowBounds{-12, {0, 1, 2, 3}});
            std::vector<std::int32_t> left(n);
            left.resize(std::size_t(table->quantized.update_bounds(&scan.given(0), n, any_below,
                                                                   shifts, own_centre.data(),
                                                                   bounds.data(), left.data())));
            std::size_t at = 0;
            for (Size i = 0; i < n; ++i) {
                const RowBounds& own = bounds[std::size_t(i)];
                const float low = *std::min_element(own.low, own.low + 4);
                CHECK_EQ(at < left.size() && left[at] == i, !(own.high < low));
                at += !(own.high < low);
                CHECK(i % 10 || own.high == -12);
                all.push_back(own.high);
                all.insert(all.end(), own.low, own.low + 4);
            }
            CHECK_EQ(at, left.size());
        }
        std::vector<float> products(n);
        table->quantized.reordered_products(&scan.given(0), n, reaches.data(), products.data());
        for (Size i = 0; i < n; ++i) {
            const QuantizedRow& row = rows[std::size_t(i)];
            const auto [fall, rise] = seen[std::size_t(i)];
            Size sum = 0;
            for (Size t = 0; t < row.nonzeros; ++t) sum += std::abs(int(row.value[t]));
            CHECK(sum < 32768);
            float lowest = lows[std::size_t(i)];
            for (Size p = 1; p < panels; ++p)
                lowest = std::min(lowest, lows[std::size_t(p * n + i)]);
            if (panels > 1) CHECK_EQ(lowest, score[std::size_t(i)]);
            for (Size g = 0; g < groups; ++g) {
                const Size at = label[std::size_t(g * n + i)];
                CHECK(coarse.centre(at) != QuantizedCentres<R>::none && coarse.group(at) == g);
            }
            for (const float value : {row.unit, row.sum, row.size, fall, rise})
                all.push_back(value);
        }
        all.insert(all.end(), products.begin(), products.end());
        all.insert(all.end(), score.begin(), score.end());
        all.insert(all.end(), second.begin(), second.end());
        all.insert(all.end(), lows.begin(), lows.end());
        if (first.empty()) {
            first = all;
            first_label = label;
            first_values = values;
        }
        CHECK(same_bits(all, first));
        CHECK(label == first_label);
        CHECK(values == first_values);
    }
}

// A group without a bound, as centres of huge norms have none, hides no other group's.
void check_missing_bounds() {
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<std::uint32_t> index(readable_past_row);
    const std::vector<float> value(readable_past_row);
    const PackedCsrRow<float> row{index.data(), value.data(), 0};
    const GroupDeltaTable none{};
    const GroupDeltas::Centre still{0, -1};
    const GroupDeltas shifts{&none, &still, {}, {}, 0x1p-120f};
    const std::int32_t label = 0;
    for (const Isa* table : isas())
        for (const bool any_below : {false, true})
            for (int crossed = 0; crossed < 4; ++crossed)
                for (int missing = 0; missing < 4; ++missing) {
                    RowBounds bounds{0, {1, 1, 1, 1}};
                    bounds.low[missing] = inf;
                    bounds.low[crossed] = -1;
                    std::int32_t left = -1;
                    CHECK_EQ(table->quantized.update_bounds(&row, 1, any_below, shifts, &label,
                                                            &bounds, &left),
                             Size(1));
                }
}

// Labels are those of canonical scores, for copies of centres and points between two of them as
// well, and bounds hold.
template <class R>
void check_nearest(Size k, bool signs) {
    Random random(static_cast<std::uint64_t>(5 * k + signs));
    const Threads threads{2};
    Matrix<R> centres = centres_of<R>(k, signs, random);
    for (Size f = 0; f < d; ++f) centres(7, f) = centres(3, f);
    const Centres<R> centroids(sparse_of(centres), d, Frame<R>{}, threads);
    const auto held = quantized(centroids, threads);
    const QuantizedCentres<R>& coarse = *held;
    constexpr Size n = 300;
    Matrix<R> x = rows_of<R>(n, signs, random);
    for (Size i = d; i < n; i += 2) {
        const Size a = random.below(k), b = random.below(k);
        for (Size f = 0; f < d; ++f) x(i, f) = R(0.5) * (centres(a, f) + centres(b, f));
    }
    for (Size f = 0; f < d; ++f) x(n - 1, f) = centres(7, f);
    const Csr<R, std::int32_t> csr(x);
    QuantizedFilter<R> scan = scan_of(csr, coarse);
    const auto open = scan.nearest(csr.rows(), centroids, coarse, [](Size t) { return t; });
    CHECK(open.exact > 0 && open.exact < open.closer && open.closer < n);
    for (Size i = 0; i < n; ++i) {
        const Size own = scan.label[std::size_t(i)];
        for (Size j = 0; j < k; ++j) {
            const double exact = double(exact_score(centroids, x, i, j));
            if (j == own)
                CHECK(exact <= scan.high[std::size_t(i)]);
            else
                CHECK(exact >= scan.low[std::size_t(i)].of[coarse.group(coarse.place(j))]);
        }
        CHECK_EQ(own, nearest_of(centroids, csr.rows().row(i)));
    }
    CHECK_EQ(scan.label[n - 1], 3);
}

template <class Check>
void for_sizes(Check check) {
    for (const Size k : sizes)
        for (const bool signs : {false, true}) check(k, signs);
}

}  // namespace

TEST(rows_are_taken_as_they_are) {
    Random random(5);
    check_taken<float, std::int32_t>(random);
    check_taken<float, std::int64_t>(random);
    check_taken<double, std::int32_t>(random);
    check_taken<double, std::int64_t>(random);
}

TEST(scores_float) { for_sizes(check_centres<float>); }
TEST(scores_double) { for_sizes(check_centres<double>); }
TEST(patches_float) { for_sizes(check_patches<float>); }
TEST(patches_double) { for_sizes(check_patches<double>); }
TEST(nearest_float) { for_sizes(check_nearest<float>); }
TEST(nearest_double) { for_sizes(check_nearest<double>); }
TEST(kernels) {
    for (const Size k : sizes) {
        check_kernels<float, std::int32_t>(k);
        check_kernels<float, std::int64_t>(k);
        check_kernels<double, std::int32_t>(k);
        check_kernels<double, std::int64_t>(k);
    }
}

TEST(missing_bounds) { check_missing_bounds(); }

// Rows that are too long or too large are never certain, and labelled all the same; those that
// share no feature with any centre are at their starts.
TEST(rows_without_bounds) {
    constexpr Size k = 40, wide = 9000;
    const Threads threads{1};
    Random random(1);
    Matrix<float> centres(k, wide, [&] { return random.below(100) ? 0.0 : random.unit(); });
    for (Size j = 0; j < k; ++j) centres(j, 0) = 0;
    const Centres<float> centroids(centres.values.data(), k, wide, Frame<float>{}, threads);
    Matrix<float> x(4, wide);
    for (Size f = 0; f < wide; ++f) x(0, f) = float(random.unit());
    for (Size f = 1; f < 20; ++f) x(1, f) = 3e38f;
    x(2, 0) = 1;
    const Csr<float, std::int32_t> csr(x);
    const auto held = quantized(centroids, threads);
    const QuantizedCentres<float>& coarse = *held;
    QuantizedFilter<float> scan = scan_of(csr, coarse);
    CHECK(!std::isfinite(scan.bound(0).width) && !std::isfinite(scan.bound(1).width));
    CHECK(std::isfinite(scan.bound(2).width) && std::isfinite(scan.bound(3).width));
    scan.nearest(csr.rows(), centroids, coarse, [](Size t) { return t; });
    for (Size i = 0; i < 4; ++i)
        CHECK_EQ(Size(scan.label[std::size_t(i)]), nearest_of(centroids, csr.rows().row(i)));
}
