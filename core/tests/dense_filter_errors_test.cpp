// The errors that the 8-bit filter for dense rows allows for are at least those of the proof
// (docs/proofs/dense_integer_filter.md), term by term, and bounds of kernels cover their own
// rounding. Real rows seldom come near these errors, so labels alone would not miss a term.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "check.hpp"
#include "coded.hpp"
#include "exactmeans/filter/dense_bounds.hpp"
#include "isas.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

using Long = long double;

template <class R>
Long half_norm2(const R* x, Size d) {
    Long sum = 0;
    for (Size f = 0; f < d; ++f) sum += Long(x[f]) * x[f] / 2;
    return sum;
}
Long square(Long v) { return v * v; }

// What the proof asks of the rounding of canonical scores of a row (kappa_x) and of a vector as a
// centre (kappa_c). A score offset is half a squared norm; that of the mean is 0.
template <class R>
Long kappa_row(const Coded<R>& coded, Size i) {
    const Size d = coded.c.d;
    const Long gamma = DenseCodes<R>::gamma(d), half = half_norm2(coded.x.values.data() + i * d, d),
               underflow = 4 * Long(d + 4) * std::numeric_limits<R>::denorm_min();
    return gamma * (coded.codes.spherical() ? std::sqrt(2 * half) : half) + underflow;
}
template <class R>
Long kappa_centre(const Coded<R>& coded, Size place) {
    if (coded.codes.spherical()) return 0;
    const Size d = coded.c.d;
    const Long h = place < coded.c.n ? Long(coded.centres.score_offset()[place]) : 0;
    return Long(DenseCodes<R>::gamma(d)) * (h + half_norm2(coded.centres.packed(place), d));
}

template <class R>
void expect_errors(Coded<R>& coded) {
    CHECK(coded.usable);
    const Size d = coded.c.d, k = coded.c.n;
    const DenseCentreCodes<R>& centres = coded.centres;
    const std::vector<CodedVector> rows = stored_rows(coded);
    for (Size i = 0; i < coded.x.n; ++i) {
        const CodedVector& row = rows[std::size_t(i)];
        CHECK(Long(row.rounding) >= kappa_row(coded, i) * row.inverse);
    }
    for (Size place = 0; place <= k; ++place)
        CHECK(Long(centres.rounding(place == k ? centres.mean_place() : place)) >=
              kappa_centre(coded, place == k ? centres.mean_place() : place));
    // Codes of the centres, made again.
    const CodedCentres panels = centres.panels();
    std::vector<R> mean(static_cast<std::size_t>(d)), own(mean.size());
    std::vector<std::int8_t> codes(mean.size());
    const auto unpack = [&](Size place, std::vector<R>& to) {
        for (Size f = 0; f < d; ++f) to[std::size_t(f)] = -centres.packed(place)[f];
    };
    unpack(centres.mean_place(), mean);
    Quantizer<R> quantize;
    Long margin = 0;
    for (Size place = 0; place < k; ++place) {
        CodedVector coded_centre;
        unpack(place, own);
        quantize(own.data(), mean.data(), d, d, codes.data(), coded_centre);
        margin = std::max(margin, Long(coded_centre.residual) + 0x1p-21L * coded_centre.norm);
        const Long norm = Long(coded_centre.norm) + coded_centre.residual;
        CHECK(Long(panels.length[place]) >= (1 + 0x1p-20L) * (norm / coded_centre.inverse));
    }
    CHECK(Long(centres.margin()) >= margin);
}

// Bounds of all scores of the rows, by codes, leave room for kappa_c.
template <class R>
void expect_room(Coded<R>& coded) {
    CHECK(coded.usable);
    const DenseCentreCodes<R>& centres = coded.centres;
    const CodedCentres panels = centres.panels();
    const std::vector<CodedVector> rows = stored_rows(coded);
    const Size d = coded.c.d, k = coded.c.n;
    CHECK(k <= ScoreBounds::lanes);  // a lane for every centre, so highs are not minima
    CodedRows<R> coded_rows;
    coded_rows.load(coded.input(), 0, nullptr, coded.x.n);
    std::vector<float> lows(std::size_t(coded.x.n * ScoreBounds::lanes)),
        highs(lows.size(), std::numeric_limits<float>::infinity());
    coded_rows.for_products(
        panels, [&](Size t, Size some, Size unit, Size units, const std::int32_t* products) {
            filter_kernels().bound_scores(products, some, panels, unit, units,
                                          {coded_rows.rows() + t, coded_rows.margin() + t,
                                           lows.data() + t * ScoreBounds::lanes, ScoreBounds::lanes,
                                           highs.data() + t * ScoreBounds::lanes});
        });
    for (Size t = 0; t < coded.x.n; ++t)
        CHECK(Long(coded_rows.margin()[t]) >= Long(rows[std::size_t(t)].norm) * centres.margin());
    const R* const minus_mean = centres.packed(centres.mean_place());
    std::vector<std::int32_t> label(std::size_t(coded.x.n)), product(label.size());
    std::vector<std::vector<float>> limits;
    for (Size j = 0; j < k; ++j) {
        std::fill(label.begin(), label.end(), std::int32_t(j));
        std::vector<float> limit(label.size(), std::numeric_limits<float>::infinity());
        const CandidateLists lists{
            coded_rows.rows(), coded_rows.margin(), limit.data(), nullptr, nullptr, true};
        integer_products().pair_products(coded_rows.codes(), centres.by_centre(), label.data(),
                                         product.data());
        filter_kernels().limit_by(product.data(), label.data(), coded.x.n, panels, lists);
        limits.push_back(limit);
    }
    for (Size i = 0; i < coded.x.n; ++i) {
        const CodedVector& row = rows[std::size_t(i)];
        Long shared = -Long(centres.base());
        for (Size f = 0; f < d; ++f) shared -= Long(coded.x(i, f)) * minus_mean[f];
        for (Size j = 0; j < k; ++j) {
            const Long v = (exact_score(coded, i, j) + shared) * row.inverse,
                       room = kappa_centre(coded, j) * row.inverse;
            const std::size_t at = std::size_t(i * ScoreBounds::lanes + j);
            CHECK(Long(lows[at]) <= v - room);
            // limit_above covers the last addition of an upper bound.
            CHECK(Long(limit_above(highs[at], 0)) >= v + room);
            CHECK(Long(limits[std::size_t(j)][std::size_t(i)]) >= v + room + 2 * row.rounding);
        }
    }
}

// Values that codes represent but for a spread, far from zero.
template <class R>
Coded<R> far_from_zero(Size n, Size k, Size d, double offset, Random& random) {
    return Coded<R>(Matrix<R>(n, d, [&] { return offset + double(random.between(-127, 127)); }),
                    Matrix<R>(k, d, [&] { return offset + double(random.between(-127, 127)); }));
}

}  // namespace

TEST(errors_are_at_least_those_of_the_proof) {
    Random random(1);
    const auto run = [&]<class R>(R) {
        for (const Size d : {4, 130, 900}) {
            Coded<R> plain(normal<R>(60, d, random), normal<R>(20, d, random));
            expect_errors(plain);
            Coded<R> offset = far_from_zero<R>(60, 20, d, 500, random);
            expect_errors(offset);
            // One large value: codes of the others are zeros, and residuals long.
            Matrix<R> x(60, d, [&] { return 0.49 * (random.coin() ? 1 : -1); }), c = x;
            for (Size i = 0; i < x.n; ++i)
                x(i, i % d) = R(random.coin() ? 127 : -127), c(i, i % d) = R(-127);
            Coded<R> residuals(std::move(x), std::move(c));
            expect_errors(residuals);
            Coded<R> zeros(Matrix<R>(60, d), Matrix<R>(20, d));
            expect_errors(zeros);
        }
        // The mean is zero, so that only the residuals make up for the length of a row.
        Matrix<R> x(40, 9000, [&] { return 0.49 * (random.coin() ? 1 : -1); });
        for (Size i = 0; i < x.n; i += 2) {
            x(i, i) = R(127);
            for (Size f = 0; f < x.d; ++f) x(i + 1, f) = -x(i, f);
        }
        Coded<R> long_residuals(x, x);
        expect_errors(long_residuals);
    };
    run(float());
    run(double());
}

TEST(errors_of_directions_are_those_of_the_proof) {
    Random random(2);
    for (const Size d : {5, 300}) {
        Matrix<float> x = normal<float>(50, d, random), c = normal<float>(20, d, random);
        std::vector<double> norms;
        const auto norm = [&](const Matrix<float>& m, Size i) {
            return std::sqrt(2 * double(half_norm2(m.values.data() + i * d, d)));
        };
        for (Size j = 0; j < c.n; ++j) {
            const double length = norm(c, j);
            for (Size f = 0; f < d; ++f) c(j, f) = float(double(c(j, f)) / length);
        }
        for (Size i = 0; i < x.n; ++i) norms.push_back(norm(x, i));
        Frame<float> frame;
        frame.metric = Metric::cosine;
        Coded<float> coded(std::move(x), std::move(c), frame, norms.data());
        expect_errors(coded);
    }
}

// The range of float32: bounds of rows and centres beyond it would overflow.
TEST(rows_and_centres_beyond_the_range_have_no_codes) {
    Random random(3);
    for (const double spread : {1e21, 1e30}) {
        Matrix<double> x = normal<double>(20, 8, random), c = normal<double>(5, 8, random);
        for (Size f = 0; f < 8; ++f) x(3, f) *= spread;
        Coded<double> far_row(x, c);
        CHECK(far_row.usable);
        CHECK_EQ(stored_rows(far_row)[3].rounding, std::numeric_limits<float>::infinity());
        for (Size f = 0; f < 8; ++f) c(2, f) *= spread;
        CHECK(!Coded<double>(normal<double>(20, 8, random), c).usable);
    }
    // Equal offsets hide that centres are long, or too long for float32.
    for (const double spread : {1e19, 1e39}) {
        Matrix<double> x = normal<double>(20, 8, random);
        for (Size i = 0; i < 20; i += 2)
            for (Size f = 0; f < 8; ++f) x(i + 1, f) = -x(i, f);
        const Matrix<double> c(5, 8, [&] { return random.coin() ? spread : -spread; });
        CHECK(!Coded<double>(x, c).usable);
    }
    // A far centre of moderate length.
    Matrix<double> c = normal<double>(5, 8, random);
    for (Size f = 0; f < 8; ++f) c(2, f) *= 1e11;
    CHECK(!Coded<double>(normal<double>(20, 8, random), c).usable);
}

TEST(bounds_leave_room_for_the_rounding_of_canonical_scores) {
    Random random(4);
    const auto run = [&]<class R>(R) {
        for (const Size d : {4, 300, 4000}) {
            Coded<R> coded = far_from_zero<R>(30, 20, d, 150, random);
            expect_room(coded);
            Coded<R> farther = far_from_zero<R>(30, 20, d, 1000, random);
            expect_room(farther);
        }
        // Offsets of centres that are far larger than the products with the rows.
        for (const double spread : {1e-3, 1e-5}) {
            Matrix<R> x(50, 4, [&] { return spread * double(random.between(-127, 127)); }),
                c(40, 4, [&] { return 1e3 * double(random.between(-127, 127)); });
            Coded<R> coded(std::move(x), std::move(c));
            expect_room(coded);
        }
    };
    run(float());
    run(double());
    // Sums of float64 that round: of score offsets, and of products with the origin of the rows.
    Coded<double> far_centres = far_from_zero<double>(30, 20, 4, 1e9, random);
    expect_room(far_centres);
    // Codes represent rows and centres, and products with the origin cancel.
    Matrix<double> x(16, 40), c(20, 40);
    for (Size i = 0; i < x.n; i += 2)
        for (Size f = 0; f < x.d; ++f) {
            const double value = f == 0 ? 127 : double(random.between(-127, 127)),
                         origin = 0x1p48 + 4097 + 2 * double(f);
            x(i, f) = origin + value;
            x(i + 1, f) = origin - value;
        }
    for (Size j = 0; j < c.n; j += 2)
        for (Size f = 0; f < c.d; f += 2) {
            const double value = f == 0 ? 127 : double(random.between(-127, 127));
            c(j, f) = c(j + 1, f + 1) = value;
            c(j, f + 1) = c(j + 1, f) = -value;
        }
    Coded<double> far_rows(std::move(x), std::move(c));
    expect_room(far_rows);
}

TEST(bounds_of_exact_scores_round_outwards) {
    Random random(7);
    const auto run = [&]<class R>(R) {
        for (int repeat = 0; repeat < 200; ++repeat) {
            const auto any = [&] { return random.normal() * std::exp2(random.uniform(-30, 30)); };
            const double upper = any(), base = any(), scale = std::abs(any());
            std::vector<float> lows(16, std::numeric_limits<float>::infinity());
            lows[3] = float(any());
            const Long own = Long(scale) * lows[3];
            const BoundedRow<R> row(5, upper, base, scale, lows.data());
            CHECK(Long(row.upper()) >= Long(upper) + 0x1p-41L * std::abs(Long(upper)));
            CHECK(Long(row.lower(0, 16)) <=
                  Long(base) + own - 0x1p-41L * (std::abs(Long(base)) + std::abs(own)));
        }
    };
    run(float());
    run(double());
}

// Bounds of kernels against the formulas of the proof, for terms that round in every way.
TEST(bounds_of_kernels_cover_their_rounding) {
    Random random(5);
    constexpr Size k = ScoreBounds::lanes, n = 200;
    constexpr Long unit = 0x1p-24L;
    for (const Isa* isa : isas()) {
        const auto values = [&](double low, double high) {
            std::vector<float> out;
            for (Size j = 0; j < k; ++j) out.push_back(float(std::exp2(random.uniform(low, high))));
            return out;
        };
        const std::vector<float> offset = values(-5, 30), length = values(-10, 10),
                                 width = values(-10, 20);
        std::vector<float> minus_scale = values(-10, 10);
        for (float& scale : minus_scale) scale = -scale;
        CodedCentres centres;
        centres.offset = offset.data();
        centres.minus_scale = minus_scale.data();
        centres.length = length.data();
        centres.width = width.data();
        centres.k = k;
        for (Size i = 0; i < n; ++i) {
            CodedVector row{};
            row.inverse = float(std::exp2(random.uniform(-5, 5)));
            row.residual = float(std::exp2(random.uniform(-10, 10)));
            row.rounding = float(std::exp2(random.uniform(-10, 20)));
            const std::int32_t margin = std::int32_t(random.between(1, 1 << 24));
            std::vector<std::int32_t> product(static_cast<std::size_t>(k));
            for (std::int32_t& p : product)
                p = std::int32_t(random.between(-(1 << 28), 1 << 28)) + margin;
            std::vector<float> low(static_cast<std::size_t>(k)),
                high(low.size(), std::numeric_limits<float>::infinity());
            isa->filter.bound_scores(product.data(), 1, centres, 0, CodedCentres::most_units,
                                     {&row, &margin, low.data(), k, high.data()});
            for (Size j = 0; j < k; ++j) {
                const std::size_t at = std::size_t(j);
                const Long g = Long(offset[at]) * row.inverse, r = Long(length[at]) * row.residual,
                           a = Long(minus_scale[at]) * product[at],
                           m = -Long(minus_scale[at]) * margin,
                           wide = 2 * (r + m) + Long(width[at]) * row.inverse,
                           size = std::abs(g) + r + std::abs(a);
                CHECK(std::abs(low[at] - (g - r + a)) <= 8 * unit * size);
                CHECK(high[at] + unit * std::abs(Long(high[at])) >= low[at] + wide);
                float limit = std::numeric_limits<float>::infinity();
                const std::int32_t own = std::int32_t(j), alone = product[at] - margin;
                const CandidateLists lists{&row, &margin, &limit, nullptr, nullptr, true};
                isa->filter.limit_by(&alone, &own, 1, centres, lists);
                const Long exact = g + r + a + 2 * m + Long(width[at]) * row.inverse;
                CHECK(limit + 8 * unit * (size + m) >= exact + 2 * row.rounding);
            }
        }
    }
    // The two parts of an upper bound nearly cancel, so the rounding of one of them is all of it.
    for (const Isa* isa : isas())
        for (int repeat = 0; repeat < 200; ++repeat) {
            const float offset = 0, minus_scale = -0.125f, length = float(random.uniform(1, 2)),
                        width = float(random.uniform(1, 2));
            CodedVector row{};
            row.inverse = float(random.uniform(1, 2));
            row.residual = float(random.uniform(1e4, 1e5));
            const std::int32_t margin = std::int32_t(random.between(1, 1 << 16)), own = 0;
            const Long wide =
                Long(length) * row.residual + 0.125L * margin + Long(width) * row.inverse;
            const std::int32_t product = std::int32_t(8 * wide);
            float limit = std::numeric_limits<float>::infinity();
            CodedCentres centres;
            centres.offset = &offset;
            centres.minus_scale = &minus_scale;
            centres.length = &length;
            centres.width = &width;
            centres.k = 1;
            isa->filter.limit_by(&product, &own, 1, centres,
                                 {&row, &margin, &limit, nullptr, nullptr, true});
            CHECK(Long(limit) >= wide - 0.125L * product);
        }
    for (int repeat = 0; repeat < 1000; ++repeat) {
        const float upper = float(random.normal() * std::exp2(random.uniform(-20, 20))),
                    rounding = float(std::exp2(random.uniform(-20, 20)));
        const Long sum = Long(upper) + 2 * Long(rounding);
        CHECK(limit_above(upper, rounding) >= sum + 0x1p-22L * std::abs(sum));
    }
}

TEST(residuals_cover_the_rounding_of_scaled_values) {
    Random random(8);
    for (const Isa* isa : isas())
        for (const float scale : {0.1f, 0.3f, 0.7f, 1e-3f})
            for (const Size d : {64, 1024}) {
                // Whole multiples of the scale: float32 may see no residual.
                std::vector<float> values(static_cast<std::size_t>(d));
                std::vector<std::int8_t> codes(values.size());
                for (Size f = 0; f < d; ++f) values[std::size_t(f)] = float(f % 255 - 127) * scale;
                CodedVector out;
                isa->filter.quantize(values.data(), d, least_scale, codes.data(), out);
                const auto left = [&] {
                    Long left2 = 0;
                    for (std::size_t f = 0; f < values.size(); ++f)
                        left2 += square(Long(values[f]) * out.inverse - codes[f]);
                    return std::sqrt(left2);
                };
                CHECK(left() <= out.residual);
                // Also that of the sum of squares, by 2^-10 at least.
                for (float& value : values) value = float(random.normal());
                isa->filter.quantize(values.data(), d, least_scale, codes.data(), out);
                const Long scaled = (0x1p-14L - 3 * 127 * 0x1p-24L) * std::sqrt(Long(d));
                CHECK(Long(out.residual) >= (left() + scaled) * (1 + 0x1p-10L));
            }
}

// Candidates are compared by reordered scores, whose error may exceed that of canonical ones.
TEST(comparisons_allow_for_both_scores) {
    Random random(6);
    for (const Size d : {6, 900, 6000}) {
        Coded<float> coded = far_from_zero<float>(20, 5, d, 300, random);
        const std::vector<CodedVector> rows = stored_rows(coded);
        const Long unit = 0x1p-24L, any = Long(d + 12) * unit / (1 - Long(d + 12) * unit),
                   both = 1 + std::max(Long(1), any / Long(DenseCodes<float>::gamma(d)));
        DenseVerifier<float> verifier;
        for (Size i = 0; i < coded.x.n; ++i) {
            verifier.load(coded.input(), i, rows[std::size_t(i)]);
            const auto score_of = [&](Size place) {
                const Candidate own{std::int32_t(place), 0};
                float score;
                score_kernels<float>().listed_scores(verifier.row(), coded.centres.packed(),
                                                     coded.centres.score_offset(), d, &own, 1,
                                                     &score);
                return Long(score);
            };
            const auto error_of = [&](Size place) {
                return both * (kappa_row(coded, i) + kappa_centre(coded, place));
            };
            for (Size j = 0; j < coded.c.n; ++j)
                CHECK(Long(verifier.upper(coded.input(), std::int32_t(j))) >=
                      score_of(j) + error_of(j));
            const Size mean = coded.centres.mean_place();
            CHECK(Long(verifier.base(coded.input())) <=
                  Long(coded.centres.base()) + score_of(mean) - error_of(mean));
        }
    }
}

// Errors as large as 0.6 of the difference of two scores: neither centre is certain to win.
TEST(comparisons_use_the_error_of_both_candidates) {
    Random random(9);
    constexpr Size d = 12;
    Coded<float> coded(normal<float>(40, d, random), normal<float>(2, d, random));
    const std::vector<CodedVector> rows = stored_rows(coded);
    DenseVerifier<float> verifier;
    for (Size i = 0; i < coded.x.n; ++i) {
        CodedVector row = rows[std::size_t(i)];
        const auto list = [] { return std::vector<Candidate>{{0, 0}, {1, 0}}; };
        const auto scores = [&] {
            verifier.load(coded.input(), i, row);
            FilterStats stats;
            const std::vector<Candidate> both = list();
            verifier.nearest(coded.input(), both.data(), 2, stats);
            return stats.scores;
        };
        const Long gap = std::abs(exact_score(coded, i, 0) - exact_score(coded, i, 1));
        CHECK(gap > 1e-3L);
        CHECK_EQ(scores(), 2);
        std::vector<Candidate> left = list();
        CHECK(verifier.keep_nearest(coded.input(), left, 1));
        // An error is this rounding twice, for both scores.
        row.rounding = float(0.3L * gap * row.inverse);
        CHECK_EQ(scores(), 4);
        left = list();
        CHECK(!verifier.keep_nearest(coded.input(), left, 1));
        CHECK_EQ(Size(left.size()), 2);
        left = list();
        CHECK(!verifier.keep_nearest(coded.input(), left, 2));
    }
}
