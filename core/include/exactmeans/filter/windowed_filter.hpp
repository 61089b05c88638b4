// The 8-bit filter for so many centres that their codes do not fit the memory or the caches.
//
// A first sweep quantises one window of centres at a time, in one buffer, and scores all rows
// against it before the next window. So the codes of a window are read from memory once per sweep,
// and the codes of all centres never exist together. Per row, the lowest two scores and the lowest
// score of each panel are kept. For the rows that these do not decide, a second sweep over the
// windows lists candidates. Float32 scores, centre by centre (filter/aggregated_scores.hpp), refine
// the candidates, and canonical scores verify the remaining ones. Memory: the codes of one window;
// per row, 100 bytes and 4 bytes for each panel; 2 bytes per nonzero of the rows, 6 more if they
// are not float32 with 32-bit indices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/score_error.hpp"
#include "exactmeans/filter/aggregated_scores.hpp"
#include "exactmeans/filter/quantized_filter.hpp"

namespace exactmeans {

template <class R>
class WindowedFilter {
public:
    // Are these centres within the limits of base/cost_model.hpp, for rows with so many nonzeros?
    static bool fits(const Centres<R>& centroids, const LayoutSettings& settings, Size nonzeros) {
        const double panel =
            double(QuantizedPanels::most_units * QuantizedPanels::unit) * double(centroids.d());
        return centroids.k() > cost::window_least_centres &&
               scores_are_products(centroids.frame().metric) && !settings.lists_rare_features() &&
               panel <= cost::window_panel_bytes &&
               double(cost::window_units) / QuantizedPanels::most_units * panel <=
                   settings.scratch_limit &&
               nonzeros >= cost::window_nonzeros_per_feature * centroids.d();
    }

    // Labels rows ids[t], or all rows if ids is null, as label_rows does. Returns false, without
    // labels, if the filter does not fit or does not pay; a Backoff spaces attempts that fail.
    template <class I>
    bool try_to_label(const CsrRows<R, I>& x, const Centres<R>& centroids,
                      const LayoutSettings& settings, const std::vector<Size>* ids,
                      const Threads& threads) {
        Size nonzeros = ids ? 0 : x.nonzeros();
        if (ids)
            for (const Size i : *ids) nonzeros += x.row(i).nonzeros;
        if (!fits(centroids, settings, nonzeros) || !backoff_.due()) return false;
        const bool paid = label_rows(x, centroids, ids ? ids->data() : nullptr,
                                     ids ? Size(ids->size()) : x.n, threads);
        backoff_.record(paid);
        return paid;
    }

    // Labels `count` rows, ids[t] or t. label[t] is the nearest centre, high[t] an upper bound of
    // its score, low[t] a lower bound of all other scores. Returns false, without labels, if 8-bit
    // scores leave so many candidates that the filter does not pay.
    template <class I>
    bool label_rows(const CsrRows<R, I>& x, const Centres<R>& centroids, const Size* ids,
                    Size count, const Threads& threads) {
        label.resize(std::size_t(count));
        high.resize(label.size());
        low.resize(label.size());
        scales_.choose(centroids, threads);
        double largest = 0;
        for (Size j = 0; j < centroids.k(); ++j)
            largest = std::max(largest, double(centroids.score_offset()[j]));
        for (Size begin = 0; begin < count; begin += cost::window_batch_rows) {
            first_ = begin;
            count_ = std::min(Size(cost::window_batch_rows), count - begin);
            ids_ = ids;
            load(x, {&scales_, largest}, threads);
            score(centroids, threads);
            find_uncertain(threads);
            if (!list_candidates(centroids, threads)) return false;
            decide(x, centroids, threads);
        }
        return true;
    }

    std::vector<std::int32_t> label;
    std::vector<double> high, low;

private:
    // A row that 8-bit scores do not decide.
    struct Uncertain {
        Size row;           // in the tile
        float limit;        // 8-bit scores of candidates do not exceed it
        float lowest_rest;  // 8-bit scores of all other places are at least this
        Size first_pair = 0, pairs = 0;
    };
    // Rows of one task. Scores are 8-bit scores: those of row t at [t], lows at [panel * rows + t].
    struct Tile {
        QuantizedFilter<R> filter;
        std::vector<std::int32_t> best;
        std::vector<float> score, second, lows;
        std::vector<Uncertain> uncertain;
        // Candidates of uncertain rows: position in `uncertain`, and centre.
        std::vector<std::pair<std::int32_t, std::int32_t>> candidates;
    };
    struct Window {
        Size first, count;  // centres
    };

    Size row_at(Size t) const { return ids_ ? ids_[first_ + t] : first_ + t; }
    Size tiles() const { return (count_ + cost::window_tile_rows - 1) / cost::window_tile_rows; }
    // Calls fn(tile, its first row, worker) in parallel.
    template <class Fn>
    void for_tiles(const Threads& threads, Fn fn) {
        threads.run(tiles(), [&](Size t, int worker) {
            fn(tiles_[std::size_t(t)], t * cost::window_tile_rows, worker);
        });
    }
    // Windows of nearly equal numbers of units, at least two panels each.
    static Size windows(Size k) {
        const Size units = QuantizedPanels::padded(k) / QuantizedPanels::unit;
        return (units + cost::window_units - 1) / cost::window_units;
    }
    static Window window(Size w, Size k) {
        constexpr Size unit = QuantizedPanels::unit;
        const Size units = QuantizedPanels::padded(k) / unit, all = windows(k),
                   first = w * units / all * unit, past = std::min(k, (w + 1) * units / all * unit);
        return {first, past - first};
    }
    static constexpr Size panels_per_window =
        (cost::window_units + QuantizedPanels::most_units - 1) / QuantizedPanels::most_units;

    template <class I>
    void load(const CsrRows<R, I>& x, const Quantization& to, const Threads& threads) {
        tiles_.resize(std::max(tiles_.size(), std::size_t(tiles())));
        for_tiles(threads, [&](Tile& tile, Size first, int) {
            const Size n = std::min(Size(cost::window_tile_rows), count_ - first);
            if (ids_)
                tile.filter.load_some(x, n, [&](Size t) { return row_at(first + t); });
            else
                tile.filter.load(x, row_at(first), row_at(first) + n);
            tile.filter.quantize(to);
        });
    }

    void score(const Centres<R>& centroids, const Threads& threads) {
        const Size k = centroids.k(), count = windows(k);
        buffers_.resize(std::size_t(threads.n_jobs));
        for (Size w = 0; w < count; ++w) {
            const Window own = window(w, k);
            codes_.quantize_window(centroids, own.first, own.count, scales_, threads);
            const QuantizedPanels panels = codes_.panels();
            for_tiles(threads, [&](Tile& tile, Size, int worker) {
                const std::size_t n = std::size_t(tile.filter.rows().size());
                Buffers& to = buffers_[std::size_t(worker)];
                to.resize(n);
                tile.lows.resize(n * std::size_t(count * panels_per_window));
                quantized_kernels().nearest(
                    tile.filter.quantized(), Size(n), panels,
                    {to.place.data(), to.score.data(), to.second.data()},
                    tile.lows.data() + n * std::size_t(w * panels_per_window), {});
                if (w == 0) {
                    tile.best = to.place;
                    tile.score = to.score;
                    tile.second = to.second;
                    return;
                }
                for (std::size_t t = 0; t < n; ++t) {
                    const bool lower = to.score[t] < tile.score[t];
                    const float loser = lower ? tile.score[t] : to.score[t];
                    tile.second[t] = std::min(loser, std::min(tile.second[t], to.second[t]));
                    if (!lower) continue;
                    tile.score[t] = to.score[t];
                    tile.best[t] = std::int32_t(own.first) + to.place[t];
                }
            });
        }
        // Score offsets are stored a little too low (QuantizedCentres::score_offset_error).
        for_tiles(threads, [&](Tile& tile, Size first, int) {
            for (Size t = 0; t < tile.filter.rows().size(); ++t) {
                const std::size_t at = std::size_t(first_ + first + t), r = std::size_t(t);
                const auto& error = tile.filter.error(t);
                label[at] = tile.best[r];
                high[at] = double(tile.score[r]) + error.offset + error.width +
                           double(centroids.score_offset()[tile.best[r]]) * 0x1p-18;
                low[at] = double(tile.second[r]) + error.offset;
            }
        });
    }

    void find_uncertain(const Threads& threads) {
        for_tiles(threads, [&](Tile& tile, Size first, int) {
            tile.uncertain.clear();
            tile.candidates.clear();
            for (Size t = 0; t < tile.filter.rows().size(); ++t) {
                const std::size_t at = std::size_t(first_ + first + t);
                if (!(high[at] < low[at]))
                    tile.uncertain.push_back({t, tile.filter.score_limit(t, high[at]),
                                              std::numeric_limits<float>::infinity()});
            }
        });
    }

    // Lists the places of all windows whose 8-bit scores do not exceed the limits. Returns false if
    // there are too many.
    bool list_candidates(const Centres<R>& centroids, const Threads& threads) {
        const Size k = centroids.k(), count = windows(k);
        for (Size w = 0; w < count; ++w) {
            Size listed = 0;
            for (Size t = 0; t < tiles(); ++t)
                listed += Size(tiles_[std::size_t(t)].candidates.size());
            if (listed > cost::window_candidates * count_) return false;
            const Window own = window(w, k);
            codes_.quantize_window(centroids, own.first, own.count, scales_, threads);
            const QuantizedPanels panels = codes_.panels();
            for_tiles(threads, [&](Tile& tile, Size, int worker) {
                std::vector<std::int32_t>& list = buffers_[std::size_t(worker)].place;
                list.resize(std::max(list.size(), std::size_t(panels.places())));
                const std::size_t n = std::size_t(tile.filter.rows().size());
                for (std::size_t u = 0; u < tile.uncertain.size(); ++u) {
                    Uncertain& row = tile.uncertain[u];
                    for (Size p = 0; p < panels.count(); ++p) {
                        const float lowest = tile.lows[n * std::size_t(w * panels_per_window + p) +
                                                       std::size_t(row.row)];
                        if (lowest > row.limit) {
                            row.lowest_rest = std::min(row.lowest_rest, lowest);
                            continue;
                        }
                        const Size found = quantized_kernels().places_below(
                            tile.filter.quantized(row.row), panels, p, row.limit, list.data(),
                            &row.lowest_rest);
                        for (Size c = 0; c < found; ++c)
                            if (Size(list[std::size_t(c)]) < own.count)
                                tile.candidates.push_back(
                                    {std::int32_t(u),
                                     std::int32_t(own.first) + list[std::size_t(c)]});
                    }
                }
            });
        }
        return true;
    }

    // Refines the candidates by float32 scores, and verifies those that are left.
    template <class I>
    void decide(const CsrRows<R, I>& x, const Centres<R>& centroids, const Threads& threads) {
        pair_row_.clear();
        pair_centre_.clear();
        for (Size t = 0; t < tiles(); ++t) {
            Tile& tile = tiles_[std::size_t(t)];
            std::sort(tile.candidates.begin(), tile.candidates.end());
            std::size_t at = 0;
            for (std::size_t u = 0; u < tile.uncertain.size(); ++u) {
                Uncertain& row = tile.uncertain[u];
                row.first_pair = Size(pair_row_.size());
                for (; at < tile.candidates.size() && tile.candidates[at].first == Size(u); ++at) {
                    pair_row_.push_back(row_at(t * cost::window_tile_rows + row.row));
                    pair_centre_.push_back(tile.candidates[at].second);
                }
                row.pairs = Size(pair_row_.size()) - row.first_pair;
            }
        }
        scores_.measure(x, centroids, pair_row_, pair_centre_, pair_score_, threads);
        const ScoreError error(centroids);
        for_tiles(threads, [&](Tile& tile, Size first, int worker) {
            for (const Uncertain& row : tile.uncertain) {
                const std::size_t at = std::size_t(first_ + first + row.row);
                const auto values = x.row(row_at(first + row.row));
                low[at] = double(row.lowest_rest) + tile.filter.error(row.row).offset;
                const double off = error.of(values);
                refine(row, at, off);
                if (!(high[at] < low[at]))
                    verify(centroids, values, row, at, buffers_[std::size_t(worker)]);
            }
        });
    }

    struct Buffers {
        std::vector<std::int32_t> place;
        std::vector<float> score, second;
        CanonicalScore<R> score_of;
        std::vector<std::int32_t> candidates;
        void resize(std::size_t n) {
            place.resize(n);
            score.resize(n);
            second.resize(n);
        }
    };
    // Sets label and bounds of a row by the float32 scores of its candidates, which are off by at
    // most `off`. low[at] is a lower bound of the scores of all other centres.
    void refine(const Uncertain& row, std::size_t at, double off) {
        double lowest = std::numeric_limits<double>::infinity(), second = lowest;
        for (Size p = row.first_pair; p < row.first_pair + row.pairs; ++p) {
            const double score = pair_score_[std::size_t(p)];
            if (score < lowest) {
                second = lowest;
                lowest = score;
                label[at] = pair_centre_[std::size_t(p)];
            } else {
                second = std::min(second, score);
            }
        }
        high[at] = lowest + off;
        low[at] = std::min(second - off, low[at]);
    }
    // The label by canonical scores of the candidates that are left. Canonical scores of the others
    // are higher, because `off` covers the errors of two float32 and two canonical scores.
    template <class Row>
    void verify(const Centres<R>& centroids, const Row& values, const Uncertain& row,
                std::size_t at, Buffers& buffers) {
        buffers.candidates.clear();
        for (Size p = row.first_pair; p < row.first_pair + row.pairs; ++p)
            if (!(pair_score_[std::size_t(p)] > high[at]))
                buffers.candidates.push_back(pair_centre_[std::size_t(p)]);
        label[at] =
            verify_candidates<R>(buffers.score_of, centroids, values, buffers.candidates).label;
        high[at] = std::numeric_limits<double>::infinity();  // any candidate may be the label
    }

    Backoff backoff_{cost::longest_wait, cost::longest_wait};
    FeatureScales scales_;
    QuantizedCentres<R> codes_;  // of one window
    std::vector<Tile> tiles_;
    std::vector<Buffers> buffers_;  // per thread
    const Size* ids_ = nullptr;
    Size first_ = 0, count_ = 0;  // the rows of a batch
    std::vector<Size> pair_row_;
    std::vector<std::int32_t> pair_centre_;
    std::vector<double> pair_score_;
    AggregatedScores<R> scores_;
};

}  // namespace exactmeans
