#include "exactmeans/filter/quantized_centres.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "check.hpp"
#include "exact_score.hpp"
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
QuantizedFilter<R> filter_of(const Csr<R, I>& csr, const QuantizedCentres<R>& codes) {
    QuantizedFilter<R> filter;
    filter.load(csr.rows(), 0, csr.n);
    filter.quantize(codes);
    return filter;
}

// Loaded rows, in order or picked, are those of the matrix rounded to float32, and readable past
// their ends.
template <class R, class I>
void check_loaded(Random& random) {
    constexpr Size n = 40;
    const Csr<R, I> csr(rows_of<R>(n, true, random));
    const CsrRows<R, I> rows = csr.rows();
    const auto is_row = [&](const PackedCsrRow<float>& loaded, Size i) {
        const auto row = rows.row(i);
        CHECK(loaded.nonzeros == row.nonzeros);
        for (Size t = 0; t < row.nonzeros; ++t) {
            CHECK(Size(loaded.index[t]) == Size(row.index[t]));
            CHECK(loaded.value[t] == float(row.value[t]));
        }
        for (Size t = row.nonzeros; t < row.nonzeros + readable_past_row; ++t)
            CHECK(Size(loaded.index[t]) < d && std::isfinite(loaded.value[t]));
    };
    Float32Rows<R> loaded;
    for (const Size begin : {Size(0), Size(7), n - 1})
        for (Size end = begin + 1; end <= n; ++end) {
            loaded.load(rows, begin, end);
            for (Size i = begin; i < end; ++i) is_row(loaded[i - begin], i);
        }
    loaded.load_some(rows, n, [](Size t) { return n - 1 - t; });
    for (Size t = 0; t < n; ++t) is_row(loaded[t], n - 1 - t);
}

// Every exact score is within its bounds: by 8-bit scores, with the kernels of each instruction
// set, and by 16-bit scores.
template <class R>
void check_scores(const QuantizedCentres<R>& codes, const Centres<R>& centroids, bool signs,
                  Random& random) {
    constexpr Size n = d + 20;
    const Size k = centroids.k();
    const Matrix<R> x = rows_of<R>(n, signs, random);
    const Csr<R, std::int32_t> csr(x);
    const QuantizedFilter<R> filter = filter_of(csr, codes);
    const QuantizedPanels panels = codes.panels();
    const float inf = std::numeric_limits<float>::infinity();
    std::vector<std::int32_t> list(static_cast<std::size_t>(QuantizedPanels::padded(k)));
    for (const Isa* table : isas())
        for (Size i = 0; i < n; ++i) {
            const auto is_below = [&](Size p, Size place, double limit, bool up) {
                const float most = std::nextafter(float(limit), up ? inf : -inf);
                float others[] = {inf, inf, inf, inf};
                const Size count = table->quantized.places_below(filter.quantized(i), panels, p,
                                                                 most, list.data(), others);
                for (const float other : others) CHECK(other > most);
                return std::find(list.data(), list.data() + count, std::int32_t(place)) !=
                       list.data() + count;
            };
            for (Size p = 0; p < panels.count(); ++p) {
                const QuantizedPanels::Panel panel = panels.panel(p);
                for (Size at = panel.first; at < panel.first + panel.width(); ++at) {
                    const Size j = codes.centre(at);
                    if (j == QuantizedCentres<R>::none) continue;
                    const double exact = double(exact_score(centroids, x, i, j)),
                                 score = exact - filter.error(i).offset;
                    CHECK(is_below(p, at, score, true));
                    CHECK(!is_below(p, at,
                                    score - filter.error(i).width - codes.score_offset_error(at),
                                    false));
                }
            }
        }
    for (Size i = 0; i < n; ++i) {
        const auto row = csr.rows().row(i);
        std::vector<double> scaled;
        std::vector<std::uint32_t> packed_columns;
        for (Size t = 0; t < row.nonzeros; ++t) {
            scaled.push_back(double(row.value[t]) *
                             double(codes.scales()[std::size_t(row.index[t])]));
            packed_columns.push_back(std::uint32_t(codes.packed_column(Size(row.index[t]))));
        }
        for (Size j = 0; j < k; ++j) {
            const double exact = double(exact_score(centroids, x, i, j));
            const Size at = codes.place(j);
            CHECK_EQ(codes.centre(at), j);
            CHECK(std::abs(
                      codes.refined_score(scaled.data(), packed_columns.data(), row.nonzeros, at) -
                      exact) <= filter.error(i).refined + codes.score_offset_error(at));
            // The 16-bit error is a fiftieth of the 8-bit one at most, besides rounding.
            CHECK(filter.error(i).refined * 50 <=
                  filter.error(i).width + codes.quantization().largest_score_offset * 0x1p-16);
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

// The codes of moved centres are replaced one by one: of two centres that share words one, the
// other, or both; with features that come and go, and values that outgrow their scales, repeatedly.
template <class R>
void check_patches(Size k, bool signs) {
    Random random(static_cast<std::uint64_t>(3 * k + signs));
    const Threads threads{2};
    Matrix<R> centres = centres_of<R>(k, signs, random);
    Centres<R> centroids(sparse_of(centres), d, Frame<R>{}, threads);
    QuantizedCentres<R> codes(centroids, std::make_shared<LayoutSettings>(), false);
    codes.update(centroids, threads);
    const std::vector<float> before = codes.scales();
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
        codes.update(centroids, moved, then, threads);
        check_scores(codes, centroids, signs, random);
    }
    Size grown = 0;
    for (std::size_t f = 0; f < before.size(); ++f) {
        CHECK(codes.scales()[f] >= before[f]);  // not all centres were packed
        grown += codes.scales()[f] > before[f];
    }
    CHECK(grown >= 4);
    // Now values have a sign that the zero point excludes, or too many centres moved.
    std::vector<SparseVector<R>> then;
    for (Size j = 0; j < k; ++j) then.push_back(centroids.nonzeros(j));
    std::vector<Size> moved{5};
    for (Size j = 6; signs && j < k; ++j) moved.push_back(j);
    for (const Size j : moved) centres(j, 7) = R(signs ? 0.25 : -0.25);
    centroids.move(sparse_of(centres), threads);
    codes.update(centroids, moved, then, threads);
    check_scores(codes, centroids, true, random);
    if (!signs) CHECK_EQ(codes.quantization().scales->zero_point(), 0);
}

// All instruction sets give the same results, for any type of indices and any length of rows.
template <class R, class I>
void check_kernels(Size k) {
    Random random(static_cast<std::uint64_t>(k));
    const Threads threads{1};
    const Matrix<R> centres = centres_of<R>(k, true, random);
    const Centres<R> centroids(centres.values.data(), k, d, Frame<R>{}, threads);
    const auto held = quantized(centroids, threads);
    const QuantizedCentres<R>& codes = *held;
    constexpr Size n = 40;
    const Csr<R, I> csr(
        Matrix<R>(n, d, [&] { return random.below(4) ? 0.0 : random.uniform(-1, 1); }));
    QuantizedFilter<R> filter = filter_of(csr, codes);
    const Size panels = codes.panels().count(), groups = codes.panels().groups();
    std::vector<float> delta_table;  // two halves each
    for (const float scale : codes.scales()) {
        const auto half = [](float x) { return std::bit_cast<std::uint32_t>(x) >> 16; };
        delta_table.push_back(std::bit_cast<float>(half(scale) << 16 | half(3 * scale)));
    }
    // Prefetch hints change no result: one range has more than a cache line per row, one less.
    const PrefetchHint next{{{csr.data.data(), Size(csr.data.size() * sizeof(R))}, {&n, 1}}};
    // Bounds updated for moved centres, with and without negative entries; the centre of every
    // tenth row did not move.
    std::vector<GroupDeltaTable> deltas;
    for (Size f = 0; f < d; ++f) {
        GroupDeltaTable& own = deltas.emplace_back();
        for (auto& half : own.half) half = std::uint16_t(0x3a00 + random.below(256));
    }
    const std::vector<GroupDeltas::Centre> moved{{0.25f, 0}, {-0.5f, 3}, {0, -1}};
    const GroupDeltas changes{deltas.data(), moved.data(), {1, 2, 3, 4}, {5, 6, 7, 8}, 0x1p-120f};
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
        std::vector<float> scaled(d + readable_past_row);
        std::vector<QuantizedRow> rows;
        std::int16_t* to = values.data();
        for (Size i = 0; i < n; ++i) {
            rows.push_back({filter.rows()[i].index, to, filter.rows()[i].nonzeros, 0, 0, 0});
            to += filter.rows()[i].nonzeros;
        }
        table->quantized.quantize_rows(filter.rows().data(), n, codes.scales().data(),
                                       scaled.data(), rows.data());
        values.resize(csr.data.size());
        table->quantized.nearest(rows.data(), n, codes.panels(),
                                 {label.data(), score.data(), second.data()}, lows.data(), next);
        std::vector<DeltaSums> sums(n);
        table->quantized.sum_deltas(filter.rows().data(), n, delta_table.data(), sums.data());
        for (const bool any_negative : {false, true}) {
            std::vector<RowBounds> bounds(n, RowBounds{-12, {0, 1, 2, 3}});
            std::vector<std::int32_t> crossed(n);
            crossed.resize(std::size_t(
                table->quantized.update_bounds(filter.rows().data(), n, any_negative, changes,
                                               own_centre.data(), bounds.data(), crossed.data())));
            std::size_t at = 0;
            for (Size i = 0; i < n; ++i) {
                const RowBounds& own = bounds[std::size_t(i)];
                const float low = *std::min_element(own.low, own.low + 4);
                CHECK_EQ(at < crossed.size() && crossed[at] == i, !(own.high < low));
                at += !(own.high < low);
                CHECK(i % 10 || own.high == -12);
                all.push_back(own.high);
                all.insert(all.end(), own.low, own.low + 4);
            }
            CHECK_EQ(at, crossed.size());
        }
        std::vector<float> products(n);
        table->quantized.reordered_products(filter.rows().data(), n, delta_table.data(),
                                            products.data());
        for (Size i = 0; i < n; ++i) {
            const QuantizedRow& row = rows[std::size_t(i)];
            const auto [fall, rise] = sums[std::size_t(i)];
            Size sum = 0;
            for (Size t = 0; t < row.nonzeros; ++t) sum += std::abs(int(row.value[t]));
            CHECK(sum < 32768);
            float lowest = lows[std::size_t(i)];
            for (Size p = 1; p < panels; ++p)
                lowest = std::min(lowest, lows[std::size_t(p * n + i)]);
            if (panels > 1) CHECK_EQ(lowest, score[std::size_t(i)]);
            for (Size g = 0; g < groups; ++g) {
                const Size at = label[std::size_t(g * n + i)];
                CHECK(codes.centre(at) != QuantizedCentres<R>::none && codes.group(at) == g);
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
    const GroupDeltas::Centre unmoved{0, -1};
    const GroupDeltas changes{&none, &unmoved, {}, {}, 0x1p-120f};
    const std::int32_t label = 0;
    for (const Isa* table : isas())
        for (const bool any_negative : {false, true})
            for (int crossed = 0; crossed < 4; ++crossed)
                for (int missing = 0; missing < 4; ++missing) {
                    RowBounds bounds{0, {1, 1, 1, 1}};
                    bounds.low[missing] = inf;
                    bounds.low[crossed] = -1;
                    std::int32_t listed = -1;
                    CHECK_EQ(table->quantized.update_bounds(&row, 1, any_negative, changes, &label,
                                                            &bounds, &listed),
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
    const QuantizedCentres<R>& codes = *held;
    constexpr Size n = 300;
    Matrix<R> x = rows_of<R>(n, signs, random);
    for (Size i = d; i < n; i += 2) {
        const Size a = random.below(k), b = random.below(k);
        for (Size f = 0; f < d; ++f) x(i, f) = R(0.5) * (centres(a, f) + centres(b, f));
    }
    for (Size f = 0; f < d; ++f) x(n - 1, f) = centres(7, f);
    const Csr<R, std::int32_t> csr(x);
    QuantizedFilter<R> filter = filter_of(csr, codes);
    const auto undecided =
        filter.label_rows(csr.rows(), centroids, codes, [](Size t) { return t; });
    CHECK(undecided.verified > 0 && undecided.verified < undecided.refined);
    CHECK(undecided.refined < n);
    for (Size i = 0; i < n; ++i) {
        const Size own = filter.label[std::size_t(i)];
        for (Size j = 0; j < k; ++j) {
            const double exact = double(exact_score(centroids, x, i, j));
            if (j == own)
                CHECK(exact <= filter.high[std::size_t(i)]);
            else
                CHECK(exact >= filter.low[std::size_t(i)].of[codes.group(codes.place(j))]);
        }
        CHECK_EQ(own, nearest_of(centroids, csr.rows().row(i)));
    }
    CHECK_EQ(filter.label[n - 1], 3);
}

template <class Check>
void for_sizes(Check check) {
    for (const Size k : sizes)
        for (const bool signs : {false, true}) check(k, signs);
}

}  // namespace

TEST(loaded_rows) {
    Random random(5);
    check_loaded<float, std::int32_t>(random);
    check_loaded<float, std::int64_t>(random);
    check_loaded<double, std::int32_t>(random);
    check_loaded<double, std::int64_t>(random);
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

// Rows that are too long or too large have no bounds but get labels; rows that share no feature
// with any centre are decided by score offsets.
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
    const QuantizedCentres<float>& codes = *held;
    QuantizedFilter<float> filter = filter_of(csr, codes);
    CHECK(!std::isfinite(filter.error(0).width) && !std::isfinite(filter.error(1).width));
    CHECK(std::isfinite(filter.error(2).width) && std::isfinite(filter.error(3).width));
    filter.label_rows(csr.rows(), centroids, codes, [](Size t) { return t; });
    for (Size i = 0; i < 4; ++i)
        CHECK_EQ(Size(filter.label[std::size_t(i)]), nearest_of(centroids, csr.rows().row(i)));
}
