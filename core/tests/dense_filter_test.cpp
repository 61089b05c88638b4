// The 8-bit filter for dense rows: products are exact, bounds hold, and labels are those of
// canonical scores. Each term of the bound is also left out, to show that the rows can tell.
#include "exactmeans/filter/dense_filter.hpp"

#include <limits>
#include <vector>

#include "../src/kernels/amx_products.hpp"
#include "../src/kernels/integer_products.hpp"
#include "check.hpp"
#include "coded.hpp"
#include "exactmeans/assign/registry.hpp"
#include "exactmeans/filter/dense_bounds.hpp"
#include "isas.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

template <class R>
Labels canonical_labels(const DenseRows<R>& x, SharedCentres<R>& shared) {
    Labels label(static_cast<std::size_t>(x.n));
    RowSlacks<R> slacks;
    Work<DenseRows<R>> work(x, shared, label.data(), slacks);
    work.pack_centres(Threads{});
    Scan<DenseRows<R>> scan;
    scan.nearest_canonical(work, 0, x.n);
    return scan.label;
}

// Labels by the filter; rows that it leaves open get the wanted label.
template <class R>
void expect_labels(Coded<R>& coded, Size* decided = nullptr) {
    CHECK(coded.usable);
    const Labels wanted = canonical_labels(coded.rows, coded.shared);
    const Size n = coded.rows.n;
    Random random(7);
    Labels any(static_cast<std::size_t>(n));
    for (std::int32_t& label : any) label = std::int32_t(random.below(coded.c.n));
    std::vector<Size> ids;
    for (Size i = 0; i < n; ++i) ids.push_back(n - 1 - i);
    DenseFilter<R> filter;
    const auto check = [&](const Size* order, const Labels* labels) {
        const FilterStats stats =
            filter.nearest(coded.input(), 0, order, n, labels ? labels->data() : nullptr);
        CHECK_EQ(stats.rows, n);
        CHECK_EQ(stats.undecided, Size(filter.undecided.size()));
        if (decided) *decided = stats.decided;
        for (const Size t : filter.undecided)
            filter.label[std::size_t(t)] = wanted[std::size_t(order ? order[t] : t)];
        for (Size t = 0; t < n; ++t)
            CHECK_EQ(filter.label[std::size_t(t)], wanted[std::size_t(order ? order[t] : t)]);
    };
    for (const bool stored : {false, true}) {
        if (stored) coded.codes.store(coded.rows, coded.centroids.frame(), Threads{});
        for (const Size* order :
             {static_cast<const Size*>(nullptr), static_cast<const Size*>(ids.data())}) {
            check(order, nullptr);
            check(order, &any);
            check(order, &wanted);
        }
    }
}

// Rows whose wanted label is not among the candidates of codes.
template <class R>
Size missed(Coded<R>& coded, std::vector<CodedVector> rows, float margin, CodedCentres centres) {
    const Labels wanted = canonical_labels(coded.rows, coded.shared);
    const Size n = coded.rows.n, d = coded.rows.d, pitch = DenseCodes<R>::pitch(d);
    Size wrong = 0;
    for (Size i = 0; i < n; ++i) {
        const CodedVector& row = rows[std::size_t(i)];
        const std::int32_t slack = std::int32_t(row.norm * margin) + (margin > 0),
                           start = slack - integer_products().bias * row.sum;
        float limit = inf;
        std::int32_t count = 0;
        std::vector<Candidate> list(CandidateLists::most);
        const CandidateLists lists{&row, &slack, &limit, &count, list.data(), false};
        std::vector<std::int32_t> products(static_cast<std::size_t>(CodedCentres::unit));
        for (Size u = 0; u < centres.units(); ++u) {
            integer_products().products({coded.codes.codes(i, d), pitch, 1}, &start, centres, u, 1,
                                        products.data());
            filter_kernels().find_candidates(products.data(), 1, centres, u, 1, lists);
        }
        bool found = count > CandidateLists::most;
        for (std::int32_t c = 0; c < count && !found; ++c)
            found = list[std::size_t(c)].centre == wanted[std::size_t(i)] &&
                    list[std::size_t(c)].low <= limit;
        wrong += !found;
    }
    return wrong;
}
// Labels and bounds of scores by DenseBounds, with places in `order` if there is one. Returns the
// rows that it decides.
template <class R>
Size expect_bounds(Coded<R>& coded, const std::vector<std::int32_t>* order) {
    CHECK(coded.centres.update(coded.centroids, coded.codes, Threads{}, order));
    const Labels wanted = canonical_labels(coded.rows, coded.shared);
    const DenseCentreCodes<R>& centres = coded.centres;
    std::vector<Size> ids;
    for (Size i = 0; i < coded.rows.n; ++i) ids.push_back(coded.rows.n - 1 - i);
    Size decided = 0;
    DenseBounds<R> bounds;
    bounds.run(coded.input(), ids.data(), Size(ids.size()), [&](Size t, const BoundedRow<R>& row) {
        const Size i = ids[std::size_t(t)], label = centres.centre(row.place());
        CHECK_EQ(label, wanted[std::size_t(i)]);
        CHECK(row.upper() >= exact_score(coded, i, label));
        const R all = row.lower(0, centres.padded_places());
        for (Size first = 0; first < centres.padded_places(); first += 16) {
            const R low = row.lower(first, 16);
            CHECK(all <= low);
            for (Size place = first; place < std::min(first + 16, centres.places()); ++place)
                if (centres.centre(place) >= 0 && centres.centre(place) != label)
                    CHECK(low <= exact_score(coded, i, centres.centre(place)));
        }
        ++decided;
    });
    CHECK_EQ(decided + Size(bounds.undecided.size()), coded.rows.n);
    return decided;
}

// What the bounds of the proof, in float64, leave of the centres.
struct Recount {
    Size decided = 0;     // rows with one candidate
    Size candidates = 0;  // of rows with several
    Size unclear = 0;     // rows with a bound so near the limit that float32 may see it otherwise
    Size most = 0;        // candidates of a row
};
template <class R>
Recount recount(Coded<R>& coded) {
    const std::vector<CodedVector> rows = stored_rows(coded);
    const CodedCentres& centres = coded.centres.panels();
    const CodesByCentre& by_centre = coded.centres.by_centre();
    Recount out;
    for (Size i = 0; i < coded.rows.n; ++i) {
        const CodedVector& row = rows[std::size_t(i)];
        const double inverse = row.inverse, residual = row.residual,
                     margin = std::floor(row.norm * coded.centres.margin()) + 1;
        std::vector<double> low;
        double limit = inf, size = 0;
        for (Size j = 0; j < centres.k; ++j) {
            std::int32_t product = 0;
            for (Size f = 0; f < coded.rows.d; ++f)
                product += coded.codes.codes(i, coded.rows.d)[f] *
                           by_centre.codes[j * by_centre.pitch + f];
            const double offset = centres.offset[j] * inverse,
                         length = centres.length[j] * residual,
                         scale = -double(centres.minus_scale[j]);
            low.push_back(offset - length - scale * (product + margin));
            limit = std::min(
                limit, low.back() + 2 * length + 2 * scale * margin + centres.width[j] * inverse);
            size = std::max({size, std::abs(offset), scale * std::abs(product)});
        }
        limit += 2 * double(row.rounding);
        Size found = 0;
        bool clear = true;
        for (const double own : low) {
            found += own <= limit;
            clear = clear && std::abs(own - limit) > 0x1p-18 * size;
        }
        out.most = std::max(out.most, found);
        out.unclear += !clear;
        if (found == 1)
            ++out.decided;
        else
            out.candidates += found;
    }
    return out;
}

// Codes, multiplied by a sign per feature, that add up to a little less than 0, and numbers that
// are larger by 0.45 in the direction of the signs, whose sum is above 0.
struct Misleading {
    std::vector<double> sign, value;
    Misleading(Size d, Random& random) {
        double sum = 0;
        for (Size f = 0; f < d; ++f) {
            sign.push_back(random.coin() ? 1 : -1);
            // The first pair fixes the scale.
            double code = f == 0 ? 127 : f == 1 ? -127 : double(random.between(-9, 9));
            if (f > 1) code -= sum > 0 ? std::min(sum, 9.0) : 0;
            sum += code;
            value.push_back(sign.back() * (f < 2 ? code : code + 0.45));
        }
        value[2] -= sign[2] * (sum + 0.1 * double(d));
    }
};
// x and -x for every row, so that the mean is 0.
Matrix<float> both(const std::vector<std::vector<double>>& rows) {
    const Size d = Size(rows[0].size());
    Matrix<float> out(2 * Size(rows.size()), d);
    for (Size i = 0; i < Size(rows.size()); ++i)
        for (Size f = 0; f < d; ++f) {
            out(2 * i, f) = float(rows[std::size_t(i)][std::size_t(f)]);
            out(2 * i + 1, f) = -out(2 * i, f);
        }
    return out;
}

}  // namespace

// The tile registers of AMX as arrays, so that CPUs without them test the kernel that uses them.
struct EmulatedTiles {
    static constexpr int count = 8;
    static inline TileShapes shapes;
    static inline std::int8_t bytes[count][16 * 64];

    static void configure(const TileShapes& own) {
        shapes = own;
        for (auto& tile : bytes) std::fill(std::begin(tile), std::end(tile), std::int8_t(0));
    }
    static void release() { shapes = {}; }
    template <int Tile>
    static void load(const void* from, Size stride) {
        for (int r = 0; r < shapes.rows[Tile]; ++r)
            std::memcpy(bytes[Tile] + r * 64, static_cast<const char*>(from) + r * stride,
                        shapes.row_bytes[Tile]);
    }
    template <int Tile>
    static void store(void* to, Size stride) {
        for (int r = 0; r < shapes.rows[Tile]; ++r)
            std::memcpy(static_cast<char*>(to) + r * stride, bytes[Tile] + r * 64,
                        shapes.row_bytes[Tile]);
    }
    template <int Sums, int Rows, int Centres>
    static void multiply() {
        CHECK(shapes.row_bytes[Rows] == 4 * shapes.rows[Centres]);
        for (int r = 0; r < shapes.rows[Sums]; ++r)
            for (int c = 0; c < 16; ++c) {
                std::int32_t sum;
                std::memcpy(&sum, bytes[Sums] + r * 64 + c * 4, sizeof sum);
                for (int t = 0; t < shapes.row_bytes[Rows]; ++t)
                    sum += bytes[Rows][r * 64 + t] *
                           std::uint8_t(bytes[Centres][t / 4 * 64 + c * 4 + t % 4]);
                std::memcpy(bytes[Sums] + r * 64 + c * 4, &sum, sizeof sum);
            }
    }
};
constexpr IntegerProducts emulated_tiles{.name = "emulated tiles",
                                         .bias = 128,
                                         .speed = 1,
                                         .products = &tile_products<EmulatedTiles>,
                                         .pair_products = &plain_pair_products};

TEST(products_are_exact_in_every_instruction_set) {
    Random random(1);
    std::vector<const IntegerProducts*> all{&emulated_tiles};
    for (const Isa* isa : isas()) all.push_back(&isa->products);
    for (const IntegerProducts* products : all)
        for (const Size d : {1, 4, 7, 64, 100, 130, 2000})
            for (const Size n : {1, 2, 5, 24, 25}) {
                const IntegerProducts& own = *products;
                const Size pitch = (d + 3) / 4 * 4, k = 60, depth = pitch / 4,
                           wide = (d + 63) / 64 * 64;
                std::vector<std::int8_t> x(static_cast<std::size_t>(n * pitch + 64), 99),
                    c(static_cast<std::size_t>(k * wide)),
                    units(static_cast<std::size_t>(64 * pitch));
                // Extreme codes too, whose sums are largest.
                const auto code = [&](Size i) {
                    return std::int8_t(i % 3 ? (i % 2 ? 127 : -127) : random.between(-127, 127));
                };
                for (Size i = 0; i < n; ++i)
                    for (Size f = 0; f < pitch; ++f)
                        x[std::size_t(i * pitch + f)] = f < d ? code(i) : std::int8_t(0);
                std::vector<std::int32_t> sum(static_cast<std::size_t>(k));
                for (Size j = 0; j < k; ++j)
                    for (Size f = 0; f < d; ++f)
                        sum[std::size_t(j)] += c[std::size_t(j * wide + f)] = code(j);
                for (Size j = 0; j < 64; ++j)
                    for (Size f = 0; f < pitch; ++f)
                        units[std::size_t(((j / 16 * depth + f / 4) * 16 + j % 16) * 4 + f % 4)] =
                            std::int8_t(std::uint8_t(
                                (j < k && f < d ? c[std::size_t(j * wide + f)] : 0) + own.bias));
                const auto exact = [&](Size i, Size j) {
                    std::int32_t total = 0;
                    for (Size f = 0; f < d; ++f)
                        total += x[std::size_t(i * pitch + f)] * c[std::size_t(j * wide + f)];
                    return total;
                };
                CodedCentres centres;
                centres.codes = units.data();
                centres.k = k;
                centres.depth = depth;
                std::vector<std::int32_t> start(static_cast<std::size_t>(n)), out(25 * 64),
                    pick(static_cast<std::size_t>(n));
                for (Size i = 0; i < n; ++i) {
                    std::int32_t total = 0;
                    for (Size f = 0; f < d; ++f) total += x[std::size_t(i * pitch + f)];
                    start[std::size_t(i)] = std::int32_t(3 * i) - own.bias * total;
                    pick[std::size_t(i)] = std::int32_t(random.below(k));
                }
                const CodeRows rows{x.data(), pitch, n};
                for (Size units_at_once = 1; units_at_once <= 4; ++units_at_once) {
                    const Size first = 4 - units_at_once;
                    own.products(rows, start.data(), centres, first, units_at_once, out.data());
                    for (Size i = 0; i < n; ++i)
                        for (Size l = 0; l < units_at_once * 16 && first * 16 + l < k; ++l)
                            CHECK_EQ(out[std::size_t(i * units_at_once * 16 + l)],
                                     exact(i, first * 16 + l) + 3 * i);
                }
                own.pair_products(rows, {c.data(), sum.data(), wide}, pick.data(), out.data());
                for (Size i = 0; i < n; ++i)
                    CHECK_EQ(out[std::size_t(i)], exact(i, pick[std::size_t(i)]));
            }
}

TEST(codes_are_within_their_residual) {
    Random random(2);
    for (const Isa* isa : isas())
        for (const Size d : {64, 128, 1024})
            for (const double spread : {1e-30, 1.0, 1e15}) {
                std::vector<float> values(static_cast<std::size_t>(d));
                std::vector<std::int8_t> codes(values.size());
                for (float& v : values) v = float(spread * std::pow(random.normal(), 3));
                CodedVector out;
                isa->filter.quantize(values.data(), d, least_scale, codes.data(), out);
                long double left2 = 0, norm2 = 0;
                std::int32_t sum = 0;
                for (std::size_t f = 0; f < values.size(); ++f) {
                    const long double left =
                        static_cast<long double>(values[f]) * out.inverse - codes[f];
                    left2 += left * left;
                    norm2 += codes[f] * codes[f];
                    sum += codes[f];
                    CHECK(codes[f] != -128);
                }
                CHECK(std::sqrt(left2) <= out.residual);
                CHECK(std::sqrt(norm2) <= out.norm);
                CHECK(out.residual <= 1.01L * std::sqrt(left2) + 0x1p-13L * std::sqrt(double(d)));
                CHECK_EQ(out.sum, sum);
                CHECK_EQ(out.rounding, 0);
                for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
                    values[3] = bad;
                    isa->filter.quantize(values.data(), d, least_scale, codes.data(), out);
                    CHECK_EQ(out.rounding, inf);
                    CHECK_EQ(codes[0], 0);
                }
            }
}

TEST(residuals_of_rows_and_centres_are_needed) {
    Random random(3);
    Size without_row = 0, without_centre = 0;
    for (int repeat = 0; repeat < 20; ++repeat) {
        const Misleading own(60, random);
        // One side is misleading, the other has no residual: all its magnitudes are equal.
        for (const bool rows_mislead : {true, false}) {
            const Matrix<float> misleading = both({own.value}), plain = both({own.sign});
            Coded<float> coded(rows_mislead ? misleading : plain,
                               rows_mislead ? plain : misleading);
            std::vector<CodedVector> rows = stored_rows(coded);
            const CodedCentres centres = coded.centres.panels();
            const float margin = coded.centres.margin();
            CHECK_EQ(missed(coded, rows, margin, centres), 0);
            if (!rows_mislead) without_centre += missed(coded, rows, 0, centres);
            for (CodedVector& row : rows) row.residual = 0;
            if (rows_mislead) without_row += missed(coded, rows, margin, centres);
        }
    }
    CHECK(without_row > 0);
    CHECK(without_centre > 0);
}

TEST(rounding_of_canonical_scores_is_allowed_for) {
    // Values that codes represent, so that canonical scores err more than codes do: long chains of
    // positive terms, and centres that differ by less than those err.
    Random random(4);
    Size without = 0;
    constexpr Size d = 4000, n = 60;
    for (int repeat = 0; repeat < 4; ++repeat) {
        Matrix<float> x(n, d), c(2, d);
        for (Size f = 0; f < d; ++f)
            c(0, f) = c(1, f) = float(random.between(-120, 127)) * 1.1f + 150;
        // The second centre has some features in another order.
        for (Size f = 0; f + 1 < d; f += 2) std::swap(c(1, f), c(1, f + 1));
        for (Size i = 0; i < n; ++i)
            for (Size f = 0; f < d; f += 2)
                x(i, f) = x(i, f + 1) = float(random.between(-120, 127)) * 1.3f + 200;
        for (Size i = 0; i < n; ++i) x(i, 1) += float(random.uniform(-0.01, 0.01));
        Coded<float> coded(std::move(x), std::move(c));
        std::vector<CodedVector> rows = stored_rows(coded);
        CHECK_EQ(missed(coded, rows, coded.centres.margin(), coded.centres.panels()), 0);
        expect_labels(coded);
        // Without residuals, the offsets (to which float64 sums were added) and products decide.
        CodedCentres centres = coded.centres.panels();
        const std::vector<float> none(static_cast<std::size_t>(CodedCentres::unit), 0.0f);
        centres.width = centres.length = none.data();
        for (CodedVector& row : rows) row.residual = row.rounding = 0;
        without += missed(coded, rows, 0, centres);
    }
    CHECK(without > 0);
}

TEST(labels_are_those_of_canonical_scores) {
    Random random(5);
    const auto run = [&]<class R>(R) {
        for (const Size d : {1, 3, 17, 64, 100, 385})
            for (const Size k : {1, 2, 16, 33, 100, 161}) {
                const Size n = 210;
                Matrix<R> c = normal<R>(k, d, random), x(n, d);
                // Rows around centres, midpoints, copies, zeros.
                for (Size i = 0; i < n; ++i) {
                    const Size a = random.below(k), b = random.below(k);
                    for (Size f = 0; f < d; ++f)
                        x(i, f) = i % 4 == 0    ? c(a, f)
                                  : i % 4 == 1  ? R((c(a, f) + c(b, f)) / 2)
                                  : i % 4 == 2  ? R(double(c(a, f)) + 0.5 * random.normal())
                                  : i % 16 == 3 ? R(0)
                                                : R(random.normal());
                }
                if (k > 4)  // equal centres: the lower index wins
                    for (Size f = 0; f < d; ++f) c(k - 1, f) = c(1, f);
                Coded<R> plain(x, c);
                Size decided = 0;
                expect_labels(plain, &decided);
                if (d == 385 && k == 33) CHECK(decided > n / 3);
                Frame<R> shifted;
                for (Size f = 0; f < d; ++f) shifted.shift.push_back(R(random.normal()));
                Coded<R> moved(x, c, shifted);
                expect_labels(moved);
            }
    };
    run(float());
    run(double());
}

TEST(directions_have_the_labels_of_canonical_scores) {
    Random random(6);
    for (const Size d : {8, 100}) {
        Matrix<float> c = normal<float>(40, d, random), x = normal<float>(300, d, random);
        for (Size j = 0; j < c.n; ++j) {
            double norm2 = 0;
            for (Size f = 0; f < d; ++f) norm2 += double(c(j, f)) * double(c(j, f));
            for (Size f = 0; f < d; ++f) c(j, f) = float(double(c(j, f)) / std::sqrt(norm2));
        }
        std::vector<double> norms;
        for (Size i = 0; i < x.n; ++i) {
            double norm2 = 0;
            for (Size f = 0; f < d; ++f) {
                x(i, f) = float(double(x(i, f)) * std::pow(10.0, double(i % 7) - 3)) + 0.1f;
                norm2 += double(x(i, f)) * double(x(i, f));
            }
            norms.push_back(std::sqrt(norm2));
        }
        Frame<float> frame;
        frame.metric = Metric::cosine;
        Coded<float> coded(x, c, frame, norms.data());
        Size decided = 0;
        expect_labels(coded, &decided);
        CHECK(decided > 0);
    }
}

TEST(bounds_hold_for_every_score) {
    Random random(12);
    const auto run = [&]<class R>(R) {
        for (const Size d : {3, 40, 130})
            for (const double offset : {0.0, 1e3}) {
                const Size n = 150, k = 70;
                Matrix<R> c = normal<R>(k, d, random), x(n, d);
                for (Size i = 0; i < n; ++i) {
                    const Size a = random.below(k);
                    for (Size f = 0; f < d; ++f)
                        x(i, f) = R(double(c(a, f)) + 0.6 * random.normal() + offset);
                }
                for (R& v : c.values) v = R(double(v) + offset);
                Frame<R> frame;
                if (d == 40) frame.shift.assign(std::size_t(d), R(offset / 2));
                Coded<R> coded(std::move(x), std::move(c), frame);
                expect_bounds(coded, nullptr);
                // Groups of 20 centres in two units each, in any order, and one centre left out:
                // no row has it for a label if it is a copy.
                std::vector<std::int32_t> order;
                for (std::int32_t g = 3; g >= 0; --g) {
                    for (std::int32_t j = 20 * g; j < std::min(20 * g + 20, 70); ++j)
                        order.push_back(j);
                    order.resize((order.size() + 15) / 16 * 16, -1);
                }
                const Size decided = expect_bounds(coded, &order);
                if (offset == 0 && d > 3) CHECK(decided > n / 3);
            }
    };
    run(float());
    run(double());
}

// Long chains of large terms: without the error of its sum, a bound by a float32 score would be on
// the wrong side for about half of the rows.
TEST(bounds_allow_for_the_rounding_of_their_own_scores) {
    Random random(13);
    constexpr Size n = 200, d = 900, k = 3;
    Matrix<float> x(n, d, [&] { return 10 + random.normal(); }),
        c(k, d, [&] { return 10 + random.normal(); });
    Coded<float> coded(std::move(x), std::move(c));
    const std::vector<CodedVector> rows = stored_rows(coded);
    // The exact product of a row with the mean of the centres.
    const auto with_mean = [&](Size i) {
        long double product = 0;
        const float* const minus_mean = coded.centres.packed(coded.centres.mean_place());
        for (Size f = 0; f < d; ++f)
            product += static_cast<long double>(coded.x(i, f)) * minus_mean[f];
        return product;
    };
    DenseVerifier<float> verifier;
    for (Size i = 0; i < n; ++i) {
        verifier.load(coded.input(), i, rows[std::size_t(i)]);
        CHECK(verifier.base(coded.input()) <= coded.centres.base() + with_mean(i));
        for (Size j = 0; j < k; ++j)
            CHECK(verifier.upper(coded.input(), std::int32_t(j)) >= exact_score(coded, i, j));
    }
}

// Limits come from upper bounds of m centres at least: with fewer, one of the nearest would be
// missing.
TEST(the_nearest_centres_are_candidates) {
    Random random(14);
    constexpr Size n = 120, d = 48, k = 150;
    Coded<float> coded(normal<float>(n, d, random), normal<float>(k, d, random));
    DenseScoreBounds<float> bounds;
    const Size step = DenseScoreBounds<float>::rows_per_call(coded.input());
    Size fewest = k;
    for (Size begin = 0; begin < n; begin += step) {
        const Size count = std::min(step, n - begin);
        bounds.compute(coded.input(), begin, nullptr, count);
        for (Size t = 0; t < count; ++t)
            for (const Size m : {1, 2, 5, 16}) {
                std::vector<std::pair<long double, std::int32_t>> order;
                for (Size j = 0; j < k; ++j)
                    order.push_back({exact_score(coded, begin + t, j), std::int32_t(j)});
                std::sort(order.begin(), order.end());
                const auto& list = bounds.candidates(t, m, k);
                for (Size p = 0; p < m; ++p)
                    CHECK(std::any_of(list.begin(), list.end(), [&](const Candidate& own) {
                        return own.centre == order[std::size_t(p)].second;
                    }));
                if (m == 5) fewest = std::min(fewest, Size(list.size()));
                CHECK(bounds.candidates(t, m, m - 1).empty());
            }
    }
    CHECK(fewest < 20);
}

TEST(statistics_are_those_of_a_recount) {
    if (integer_products().speed == 1) return;  // no pass uses the filter
    Random random(15);
    constexpr Size n = 2200, d = 96, k = 140;  // too many for inter-centre distances
    Matrix<double> c = normal<double>(k, d, random), x(n, d);
    for (Size i = 0; i < n; ++i) {
        const Size a = random.below(k), b = random.below(k);
        const double share = random.uniform(0.35, 0.5);
        for (Size f = 0; f < d; ++f)
            x(i, f) = (1 - share) * c(a, f) + share * c(b, f) + 0.3 * random.normal();
    }
    Coded<double> coded(x, c);
    const Recount wanted = recount(coded);
    CHECK(wanted.decided > n / 4 && wanted.decided < n - n / 20);
    CHECK(wanted.unclear < n / 100 && wanted.most <= CandidateLists::most);
    for (const char* name : {"lloyd", "hamerly", "yinyang"}) {
        Labels labels(std::size_t(n), -1);
        const AssignStats stats = make_assigner<double>(name, n, k, {})
                                      ->assign(coded.rows, coded.shared, labels.data(), Threads{});
        CHECK_EQ(stats.filtered, n);
        CHECK(std::abs(stats.decided - wanted.decided) <= wanted.unclear);
        // No scores are so near that float64 leaves several candidates for canonical ones.
        CHECK(std::abs(stats.verified - wanted.candidates) <= 2 * wanted.unclear);
        const bool bounds = name != std::string("lloyd");  // which need the score of every label
        CHECK_EQ(stats.distances, stats.verified + (bounds ? n : 0));
        CHECK_EQ(stats.skipped, bounds ? 0 : stats.decided);
    }
}

TEST(wild_data_has_the_right_labels) {
    Random random(8);
    constexpr Size n = 250, d = 40, k = 30;
    const auto run = [&]<class R>(R, auto change_rows, auto change_centres) {
        Matrix<R> x = normal<R>(n, d, random), c = normal<R>(k, d, random);
        change_rows(x);
        change_centres(c);
        Coded<R> coded(std::move(x), std::move(c));
        expect_labels(coded);
        expect_bounds(coded, nullptr);
    };
    const auto same = [](auto&) {};
    const auto all = [](double by, double plus) {
        return [=](auto& m) {
            for (auto& v : m.values) v = decltype(+v)(double(v) * by + plus);
        };
    };
    const auto one = [](double by) {
        return [=](auto& m) {
            for (Size f = 0; f < d; ++f) m(3, f) = decltype(+m(3, f))(double(m(3, f)) * by);
        };
    };
    run(float(), same, one(1e4));
    run(float(), one(1e8), same);
    run(float(), all(1e-3, 1e3), all(1e-3, 1e3));
    run(float(), all(0, 5), same);
    run(float(), all(0, 0), all(0, 0));
    run(float(), all(1e-12, 0), all(1e-12, 0));
    run(float(), all(1e7, 0), all(1e7, 0));
    run(double(), all(1e-60, 0), same);
    run(double(), one(1e100), same);
    run(double(), all(1, 1e9), all(1, 1e9));
}

TEST(centres_beyond_float32_bounds_are_refused) {
    Random random(11);
    const Coded<double> coded(normal<double>(50, 20, random), normal<double>(5, 20, random, 1e30));
    CHECK(!coded.usable);
}

// In units of the least scale, which rows of zeros have, the rounding of these scores is infinite
// in float32. All centres have the same score offset, but the last one the next lower float32.
TEST(centres_whose_bounds_are_infinite_in_float32_are_refused) {
    Random random(16);
    constexpr Size d = 1024;
    for (const Size k : {12, 40}) {
        Matrix<float> c(k, d, [&] { return std::copysign(0x1.8p36, random.normal()); });
        c(k - 1, 0) -= std::copysign(0x1.4p22f, c(k - 1, 0));
        Coded<float> coded(Matrix<float>(50, d), std::move(c));
        const Labels wanted = canonical_labels(coded.rows, coded.shared);
        CHECK_EQ(wanted[0], k - 1);
        DenseFilter<float> filter;
        if (coded.usable) filter.nearest(coded.input(), 0, nullptr, 50, nullptr);
        CHECK(!coded.usable || filter.label == wanted);
    }
}

// Places without a centre do not become candidates.
TEST(rows_whose_limit_is_infinite_in_float32_stay_undecided) {
    Random random(17);
    constexpr Size d = 64;
    const double half = DenseCodes<double>::gamma(d) * 0.501 * d,
                 value = double(float(std::sqrt(0x1.8p67 / half)));
    Coded<double> coded(Matrix<double>(50, d, [&] { return value; }),
                        normal<double>(12, d, random, 0.01));
    CHECK(!(stored_rows(coded)[0].rounding < 0x1p127f));
    expect_labels(coded);
    CHECK_EQ(expect_bounds(coded, nullptr), 0);
}

TEST(rows_that_are_not_finite_stay_undecided) {
    Random random(9);
    Matrix<float> x = normal<float>(100, 20, random), c = normal<float>(10, 20, random);
    x(7, 3) = std::numeric_limits<float>::quiet_NaN();
    x(50, 0) = inf;
    Coded<float> coded(std::move(x), std::move(c));
    DenseFilter<float> filter;
    filter.nearest(coded.input(), 0, nullptr, 100, nullptr);
    CHECK_EQ(Size(filter.undecided.size()), 2);
    CHECK_EQ(filter.undecided[0], 7);
    CHECK_EQ(filter.undecided[1], 50);
}

TEST(more_candidates_than_a_list_holds_leave_the_row_undecided) {
    Random random(10);
    Matrix<float> x = normal<float>(50, 20, random), c(40, 20);
    for (Size j = 0; j < 40; ++j)
        for (Size f = 0; f < 20; ++f) c(j, f) = float(f);
    Coded<float> coded(std::move(x), std::move(c));
    DenseFilter<float> filter;
    const FilterStats stats = filter.nearest(coded.input(), 0, nullptr, 50, nullptr);
    CHECK_EQ(stats.undecided, 50);
    expect_labels(coded);
}
