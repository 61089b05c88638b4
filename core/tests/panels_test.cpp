// Kernels that read parts of the layout, and bounds: every instruction set gives the bits of the
// baseline. Arrays have exactly the required length, so that AddressSanitizer detects full loads of
// half vectors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "check.hpp"
#include "exactmeans/kernels/scores.hpp"
#include "isas.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

// One to nine units, in panels of all widths: the last vector of a panel may be a half one.
template <class R>
std::vector<Size> every_k() {
    std::vector<Size> out;
    for (Size units = 1; units <= 9; ++units) out.push_back(units * unit_width<R> - 1);
    for (const Size units : {14, 15, 17, 29, 43}) out.push_back(units * unit_width<R>);
    return out;
}

template <class R>
struct Exact {
    Size size;
    std::unique_ptr<R[]> values;

    template <class Draw>
    Exact(Size n, Draw draw) : size(n), values(new R[std::size_t(n)]) {
        for (Size i = 0; i < n; ++i) values[std::size_t(i)] = R(draw());
    }
};

template <class R>
struct Sample {
    static constexpr Size n = 37;
    Size k, d;
    Exact<R> values, score_offset;
    std::vector<Exact<R>> rows;
    std::vector<const R*> dense;
    std::vector<std::uint32_t> index;
    std::vector<PackedCsrRow<R>> sparse;

    Sample(Random& random, Size centres, Size features)
        : k(centres),
          d(features),
          values(padded<R>(k) * d, [&] { return random.normal(); }),
          score_offset(padded<R>(k), [&] { return random.normal(); }) {
        for (Size j = k; j < score_offset.size; ++j)
            score_offset.values[std::size_t(j)] = std::numeric_limits<R>::infinity();
        for (Size f = 0; f < d; ++f) index.push_back(std::uint32_t(f));
        for (Size i = 0; i < n; ++i) rows.emplace_back(d, [&] { return random.normal(); });
        for (const Exact<R>& row : rows) {
            dense.push_back(row.values.get());
            const Size some = d - Size(sparse.size()) % d;
            sparse.push_back({index.data() + (d - some), row.values.get(), some});
        }
    }
    Panels<R> panels(Size count) const {
        return {values.values.get(), score_offset.values.get(), k, d, count};
    }
};

template <class R>
struct Found {
    std::vector<std::int32_t> label;
    std::vector<R> score, second;

    explicit Found(Size n)
        : label(std::size_t(n), -7), score(std::size_t(n), -7), second(std::size_t(n), -7) {}
    Nearest<R> out() { return {label.data(), score.data(), second.data()}; }
    bool operator==(const Found&) const = default;
};

template <class R>
void check_panels(Size k, Size d) {
    Random random(static_cast<std::uint64_t>(k + d));
    const Sample<R> sample(random, k, d);
    const Size n = sample.n;
    const Panels<R> dense = sample.panels(dense_panels<R>(k)),
                    csr = sample.panels(csr_panels<R>(k));
    const Isa& first = *isas()[0];
    const auto same = [&](auto run) {
        Found<R> wanted(n);
        run(first, wanted.out());
        for (const Isa* table : isas()) {
            Found<R> found(n);
            run(*table, found.out());
            CHECK(found == wanted);
        }
    };
    for (Size p = 0; p < dense.count; ++p)
        same([&](const Isa& table, const Nearest<R>& out) {
            table.scores<R>().panel_dense(sample.dense.data(), n, dense, p, out);
        });
    for (Size p = 0; p < csr.count; ++p)
        same([&](const Isa& table, const Nearest<R>& out) {
            table.scores<R>().panel_csr(sample.sparse.data(), n, csr, p, out);
        });
    same([&](const Isa& table, const Nearest<R>& out) {
        table.scores<R>().nearest_dense(sample.dense.data(), n, nullptr, dense, out);
    });
    same([&](const Isa& table, const Nearest<R>& out) {
        table.scores<R>().nearest_csr(sample.sparse.data(), n, csr, out);
    });
    std::vector<R> wanted_dense(std::size_t(n * k)), wanted_csr(wanted_dense);
    first.scores<R>().scores_dense(sample.dense.data(), n, dense, wanted_dense.data());
    first.scores<R>().scores_csr(sample.sparse.data(), n, csr, wanted_csr.data());
    for (const Isa* table : isas()) {
        std::vector<R> scores(wanted_dense.size());
        table->scores<R>().scores_dense(sample.dense.data(), n, dense, scores.data());
        CHECK(scores == wanted_dense);
        table->scores<R>().scores_csr(sample.sparse.data(), n, csr, scores.data());
        CHECK(scores == wanted_csr);
    }
    same([&](const Isa& table, const Nearest<R>& out) {
        table.scores<R>().lowest_two(wanted_dense.data(), n, k, out);
    });
}

template <class R>
void check_all_panels() {
    for (const Size k : every_k<R>())
        for (const Size d : {1, 5, 33, 70}) check_panels<R>(k, d);
}

template <class R>
void check_sizes() {
    Random random(4);
    for (const Size d : {1, 7, 8, 9, 16, 17, 100}) {
        const Exact<R> x(d, [&] { return random.normal(); });
        std::vector<double> wanted(std::size_t(d), 0.5);
        double most = 0;
        for (Size f = 0; f < d; ++f) {
            const double size = std::abs(double(x.values[std::size_t(f)]));
            most = std::max(most, size);
            wanted[std::size_t(f)] = std::max(0.5, size * 0.3);
        }
        for (const Isa* table : isas()) {
            std::vector<double> bounds(std::size_t(d), 0.5);
            double largest = 0;
            CHECK(table->vectors<R>().sizes(x.values.get(), d, 0.3, largest, bounds.data()));
            CHECK_EQ(largest, most);
            CHECK(bounds == wanted);
            for (const double bad :
                 {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                  std::numeric_limits<double>::quiet_NaN()})
                for (Size f = 0; f < d; ++f) {
                    std::vector<R> other(x.values.get(), x.values.get() + d);
                    other[std::size_t(f)] = R(bad);
                    CHECK(!table->vectors<R>().sizes(other.data(), d, 1.0, largest, bounds.data()));
                }
            largest = 0;
        }
    }
}

// Rows that are not finite have no finite score, whatever the centres; predict relies on this.
template <class R>
void check_doubtful() {
    Random random(23);
    constexpr R infinity = std::numeric_limits<R>::infinity();
    for (const Size d : {2, 3, 16, 40, 4100})
        for (const Size k : {3, 20, 35}) {
            Sample<R> sample(random, k, d);
            for (Size at = 0; at < sample.values.size; at += 3)
                sample.values.values[std::size_t(at)] = 0;
            std::vector<char> bad(Sample<R>::n, 0);
            Size next = 0;
            for (const R value : {infinity, -infinity, std::numeric_limits<R>::quiet_NaN()})
                for (const Size f : {Size(0), d / 2, d - 1}) {
                    const std::size_t i = std::size_t(next += 4);
                    sample.rows[i].values[std::size_t(f)] = value;
                    bad[i] = 1;
                }
            const std::vector<R> shift(static_cast<std::size_t>(d), R(0.5));
            for (const Isa* table : isas())
                for (const bool shifted : {false, true}) {
                    if (shifted && d > short_row_features<R>) continue;
                    std::vector<std::int32_t> label(Sample<R>::n);
                    std::vector<R> score(Sample<R>::n);
                    table->scores<R>().nearest_dense(
                        sample.dense.data(), Sample<R>::n, shifted ? shift.data() : nullptr,
                        sample.panels(dense_panels<R>(k)), {label.data(), score.data(), nullptr});
                    for (std::size_t i = 0; i < bad.size(); ++i)
                        CHECK_EQ(std::abs(score[i]) < infinity, !bad[i]);
                }
        }
}

}  // namespace

TEST(panels_float) { check_all_panels<float>(); }
TEST(panels_double) { check_all_panels<double>(); }
TEST(doubtful_float) { check_doubtful<float>(); }
TEST(doubtful_double) { check_doubtful<double>(); }
TEST(sizes_float) { check_sizes<float>(); }
TEST(sizes_double) { check_sizes<double>(); }

TEST(short_rows_against_a_list_of_centres) {
    Random random(5);
    const auto check = [&]<class R>(R) {
        constexpr Size n = 96, d = 7, count = 11;
        const Exact<R> tile(n * d, [&] { return random.normal(); });
        const Exact<R> centres(count * (d + 1), [&] { return random.normal(); });
        std::vector<std::int32_t> wanted(n), found(n);
        const auto run = [&](const Isa& table, std::vector<std::int32_t>& label) {
            table.scores<R>().nearest_in_list(tile.values.get(), n, d, centres.values.get(), count,
                                              label.data());
        };
        run(*isas()[0], wanted);
        for (const Isa* table : isas()) {
            run(*table, found);
            CHECK(found == wanted);
        }
    };
    check(float());
    check(double());
}

TEST(bounds_of_units) {
    Random random(6);
    for (Size n = 8; n <= 72; n += 8) {
        const Exact<float> lower(n, [&] { return random.unit(); }),
            drift(n, [&] { return 0.1 * random.unit(); }), gap(n, [&] { return random.unit(); });
        const GroupLowerBounds lowers{lower.values.get(), drift.values.get(), gap.values.get(),
                                      0.2f};
        std::vector<std::int32_t> wanted(static_cast<std::size_t>(n));
        float least = 0;
        const Size some = isa_baseline.bounds.within(lowers, n, 0.5f, wanted.data(), least);
        for (const Isa* isa : isas()) {
            std::vector<std::int32_t> found(static_cast<std::size_t>(n));
            float own = 0;
            CHECK_EQ(isa->bounds.within(lowers, n, 0.5f, found.data(), own), some);
            CHECK(found == wanted && own == least);
        }
    }
}

TEST(lowest_products_in_a_tile) {
    Random random(7);
    constexpr Size k = 5;
    const Exact<float> products(k * bound_tile, [&] { return random.normal(); }),
        score_offset(k, [&] { return random.normal(); }), scale(k, [&] { return random.unit(); });
    const auto run = [&](const Isa& isa) {
        std::vector<float> out(std::size_t(3 * bound_tile));
        isa.bounds.lowest_in_tile(products.values.get(), score_offset.values.get(),
                                  scale.values.get(), k, out.data(), out.data() + bound_tile,
                                  out.data() + 2 * bound_tile);
        return out;
    };
    for (const Isa* isa : isas()) CHECK(run(*isa) == run(isa_baseline));
}
