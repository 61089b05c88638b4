// Centres in 16 bits, for a first look at CSR rows.
//
// A pass over CSR rows waits for the centres' values, which lie all over the caches. Here they take
// a half or a quarter of the room, and still decide nearly every row: each value is a whole number
// of steps of its centre, so that a row's score is off by half a step for each unit of |x|_1, and a
// little more for rounding. What remains open is decided by the centres as they are, of which only
// those that may be the nearest are looked at. docs/numerics.md ("A first look") derives the
// bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/pair_score.hpp"
#include "exactmeans/rows.hpp"

namespace exactmeans {

template <class R>
class Coarse {
public:
    // Of all centres.
    Coarse(const Centroids<R>& centroids, bool) {
        std::vector<Size> all(static_cast<std::size_t>(centroids.k()));
        std::iota(all.begin(), all.end(), Size(0));
        hold(centroids, std::move(all));
    }
    // Of none yet.
    Coarse() = default;

    // Holds these centres from now on, in this order.
    void hold(const Centroids<R>& centroids, std::vector<Size> centres) {
        centre_ = std::move(centres);
        k_ = Size(centre_.size());
        d_ = centroids.d();
        version_ = -1;
        packed_.assign(std::size_t(k_), -1);
        start_.assign(std::size_t(padded<float>(k_)), std::numeric_limits<float>::infinity());
        step_.assign(start_.size(), 0.0f);
        values_.resize(start_.size() * std::size_t(d_));
        view_ = {{nullptr, start_.data(), k_, d_, csr_panels<float>(k_), centroids.slots_or_null()},
                 values_.data(),
                 step_.data()};
    }
    Size k() const { return k_; }
    // Rows that should be looked at in one call, of so many. A panel comes into the cache once per
    // call, so calls are long; for the only panel there is, rows may as well stay in the cache.
    Size batch(Size rows) const { return view_.lanes.count == 1 ? Size(128) : rows; }
    // The steps of its centres, in their order.
    const std::vector<float>& steps() const { return step_; }

    // Is there room for them, and not a better layout?
    static bool fits(const Centroids<R>& centroids) {
        if (centroids.layout().lists_rare_features()) return false;
        Size nonzeros = 0;
        for (Size j = 0; j < centroids.k() && centroids.sparse(); ++j)
            nonzeros += centroids.sparse_master(j).size();
        if (!centroids.sparse()) nonzeros = centroids.k() * centroids.d();
        return centroids.layout().all_have_slots(centroids.d(), nonzeros, sizeof(std::int16_t));
    }
    static const Coarse& of(const Centroids<R>& centroids, const Threads& threads) {
        return centroids.template laid_out<Coarse>(false, threads);
    }
    bool dense() const { return false; }
    const CoarsePanels& panels() const { return view_; }

    void update(const Centroids<R>& centroids, const Threads& threads) {
        if (version_ == centroids.version()) return;
        version_ = centroids.version();
        for (std::size_t t = 0; t < centre_.size(); ++t)
            start_[t] = float(double(centroids.start()[centre_[t]]) * (1 - 0x1p-20));
        const Size units = padded<float>(k_) / unit_width<float>;
        std::vector<char> stale(static_cast<std::size_t>(units), 0);
        for (Size t = 0; t < k_; ++t)
            stale[std::size_t(t / unit_width<float>)] |=
                packed_[std::size_t(t)] != centroids.moves(centre_[std::size_t(t)]);
        const bool all = std::find(stale.begin(), stale.end(), char(0)) == stale.end();
        if (all)
            threads.ranges(Size(values_.size()), Size(1) << 18, [&](Size begin, Size end, int) {
                std::fill(values_.begin() + begin, values_.begin() + end, std::int16_t(0));
            });
        // Neighbours share lines of the cache: one range for each thread.
        threads.ranges(units, units / threads.n_jobs + 1, [&](Size begin, Size end, int) {
            for (Size u = begin; u < end; ++u)
                if (stale[std::size_t(u)]) pack(centroids, u, !all);
        });
    }

    // The highest score of a row and the centre at a place, of which the lowest is `low`.
    double highest(double low, Size place, float error) const {
        const std::size_t at = std::size_t(place);
        return low + 2.0 * double(error) * double(step_[at]) + double(start_[at]) * 0x1p-18 +
               0x1p-100;
    }

    // The lowest scores of a row and all centres.
    void lowest(const CoarseRow& row, double* out) const {
        for (Size p = 0; p < view_.lanes.count; ++p) {
            const auto panel = view_.lanes.panel(p);
            const Size width = std::min(panel.width(), k_ - panel.first);
            double* own = out + panel.first;
            std::fill_n(own, width, 0.0);
            for (Size t = 0; t < row.nonzeros; ++t) {
                const double x = row.value[t];
                const std::int16_t* values =
                    values_.data() + panel.first * d_ + Size(row.index[t]) * panel.width();
                for (Size l = 0; l < width; ++l) own[l] += x * double(values[l]);
            }
        }
        for (Size j = 0; j < k_; ++j)
            out[j] = (out[j] - double(row.error)) * double(step_[std::size_t(j)]) +
                     double(start_[std::size_t(j)]);
    }

private:
    static constexpr double most = std::numeric_limits<std::int16_t>::max();

    void pack(const Centroids<R>& centroids, Size unit, bool clear) {
        const Size first = unit * unit_width<float>, past = std::min(k_, first + unit_width<float>);
        const auto panel = panel_of(unit);
        std::int16_t* lanes = values_.data() + panel.first * d_ + (first - panel.first);
        for (Size slot = 0; clear && slot < d_; ++slot)
            std::fill_n(lanes + slot * panel.width(), unit_width<float>, std::int16_t(0));
        const std::uint32_t* slots = centroids.slots_or_null();
        for (Size t = first; t < past; ++t) {
            const Size j = centre_[std::size_t(t)];
            packed_[std::size_t(t)] = centroids.moves(j);
            double largest = 0;
            const auto each = [&](auto visit) {
                centroids.for_values(j, [&](Size f, R c) {
                    visit(f, double(Layout<R>::packed(centroids.frame(), f, c)));
                });
            };
            each([&](Size, double p) { largest = std::max(largest, std::abs(p)); });
            float& step = step_[std::size_t(t)];
            step = std::max(0x1p-100f, float(largest / most));
            const double per = 1.0 / double(step);
            each([&](Size f, double p) {
                lanes[(slots ? Size(slots[f]) : f) * panel.width() + (t - first)] =
                    std::int16_t(std::lrint(std::clamp(p * per, -most, most)));
            });
        }
    }

    Panels<float>::Panel panel_of(Size unit) const {
        for (Size p = 0;; ++p) {
            const auto panel = view_.lanes.panel(p);
            if ((unit * unit_width<float>) < panel.first + panel.width()) return panel;
        }
    }

    Size k_ = 0, d_ = 0;
    Size version_ = -1;
    std::vector<Size> centre_;  // at each place
    std::vector<Size> packed_;  // moves of the centre that the layout has
    std::vector<float> start_, step_;
    std::vector<std::int16_t> values_;
    CoarsePanels view_{};
};

// One thread's buffers for labels by a first look. What it finds of loaded row t stands at [t].
template <class R>
class CoarseScan {
public:
    // Makes rows [begin, begin + count), `stride` apart, ready for looks at centres of this layout.
    template <class I>
    void load(const CsrRows<R, I>& x, const CoarsePanels& panels, Size begin, Size count,
              Size stride = 1) {
        Size total = 0;
        for (Size t = 0; t < count; ++t) total += x.row(begin + t * stride).nonzeros;
        rows_.resize(std::size_t(count));
        slots_.resize(std::size_t(total + coarse_ahead));
        if constexpr (!is_single) values_.resize(std::size_t(total));
        std::uint32_t* to = slots_.data();
        float* to_value = values_.data();
        for (Size t = 0; t < count; ++t) {
            const auto row = x.row(begin + t * stride);
            const Size n = row.nonzeros;
            for (Size e = 0; e < n; ++e)
                to[e] = panels.lanes.slots ? panels.lanes.slots[row.index[e]]
                                           : std::uint32_t(row.index[e]);
            const float* value;
            if constexpr (is_single) {
                value = row.value;
            } else {
                for (Size e = 0; e < n; ++e) to_value[e] = float(row.value[e]);
                value = to_value;
                to_value += n;
            }
            rows_[std::size_t(t)] = {to, value, n, error(norm1_about(row.value, n), n)};
            to += n;
        }
        std::fill_n(to, coarse_ahead, 0u);
    }
    const CoarseRow& row(Size t) const { return rows_[std::size_t(t)]; }
    // Forgets all loaded rows but these, ascending.
    void keep(const std::vector<std::int32_t>& some) {
        for (std::size_t t = 0; t < some.size(); ++t) rows_[t] = rows_[std::size_t(some[t])];
        rows_.resize(some.size());
    }

    // Which of the centres may have the lowest score, that lowest score, and the next lowest.
    void look(const Coarse<R>& coarse) {
        score.resize(rows_.size());
        second.resize(rows_.size());
        label.resize(rows_.size());
        kernels<float>().coarse_csr(rows_.data(), Size(rows_.size()), coarse.panels(),
                                    {label.data(), score.data(), second.data()});
    }
    // The labels of the loaded rows, of which row_of(t) is number t, by a look at all centres;
    // `highest` is what their scores may be at most. Returns how many were left open by it.
    template <class I, class RowOf>
    Size nearest(const CsrRows<R, I>& x, const Centroids<R>& centroids, const Coarse<R>& coarse,
                 RowOf row_of) {
        look(coarse);
        highest.resize(rows_.size());
        Size open = 0;
        for (std::size_t t = 0; t < rows_.size(); ++t) {
            highest[t] = coarse.highest(double(score[t]), label[t], rows_[t].error);
            if (highest[t] < double(second[t])) continue;
            label[t] = decide(x.row(row_of(Size(t))), rows_[t], centroids, coarse);
            highest[t] = std::numeric_limits<double>::infinity();
            ++open;
        }
        return open;
    }

    std::vector<std::int32_t> label;
    std::vector<float> score, second;
    std::vector<double> highest;

private:
    static constexpr bool is_single = std::is_same_v<R, float>;

    // |x|_1, off by less than error() allows for.
    static double norm1_about(const R* value, Size n) {
        double sum[4] = {};
        Size e = 0;
        for (; e + 4 <= n; e += 4)
            for (Size l = 0; l < 4; ++l) sum[l] += std::abs(double(value[e + l]));
        for (; e < n; ++e) sum[0] += std::abs(double(value[e]));
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }

    // The nearest centre by canonical scores, of all whose scores may be as low as any.
    template <class Row>
    std::int32_t decide(const Row& row, const CoarseRow& seen, const Centroids<R>& centroids,
                        const Coarse<R>& coarse) {
        const Size k = centroids.k();
        lowest_.resize(std::size_t(k));
        coarse.lowest(seen, lowest_.data());
        double limit = std::numeric_limits<double>::infinity();
        for (Size j = 0; j < k; ++j)
            limit = std::min(limit, coarse.highest(lowest_[std::size_t(j)], j, seen.error));
        std::int32_t best = 0;
        R low = std::numeric_limits<R>::infinity();
        for (Size j = 0; j < k; ++j) {
            if (lowest_[std::size_t(j)] > limit) continue;
            const R own = score_of_(centroids, row, j);
            if (own < low) {
                low = own;
                best = std::int32_t(j);
            }
        }
        return best;
    }

    // By how many steps a score may be off; `sum` = |x|_1. Infinite where nothing is certain.
    static float error(double sum, Size nonzeros) {
        const double terms = double(nonzeros);
        if (!(sum < 0x1p100) || nonzeros > (Size(1) << 16))
            return std::numeric_limits<float>::infinity();
        return float((sum * (0.5 + 0x1p-9 * (2.1 * terms + 16)) + terms * 0x1p-130) *
                     (1 + 0x1p-20));
    }

    std::vector<CoarseRow> rows_;
    std::vector<std::uint32_t> slots_;
    std::vector<float> values_;
    std::vector<double> lowest_;
    PairScore<R> score_of_;
};

// Decides, pass by pass, whether rows are labelled by a first look, which pays while it settles
// nearly all of them.
template <class R>
class FirstLook {
public:
    // May there be one at these centres?
    bool possible(const Centroids<R>& centroids) {
        if (centroids.k() < least_k || centroids.frame().metric == Metric::manhattan ||
            !Coarse<R>::fits(centroids))
            return false;
        if (wait_ == 0) return true;
        --wait_;
        return false;
    }
    // A few rows are asked.
    template <class I>
    bool pays(const CsrRows<R, I>& x, const Centroids<R>& centroids, const Coarse<R>& coarse) {
        const Size some = std::min(probed, x.n), stride = some ? x.n / some : 1;
        scan_.load(x, coarse.panels(), 0, some, stride);
        const Size open = scan_.nearest(x, centroids, coarse, [&](Size t) { return t * stride; });
        if (open * 16 <= some) return true;
        wait_ = passes_without;
        return false;
    }

private:
    static constexpr Size least_k = 32, probed = 256;
    static constexpr int passes_without = 16;

    int wait_ = 0;
    CoarseScan<R> scan_;
};

}  // namespace exactmeans
