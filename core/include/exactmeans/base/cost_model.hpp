// Tuning constants: what is cheap, what is dear, and when a mechanism pays. None of them changes a
// result. Where a value was not measured, the comment says that it is an estimate.
#pragma once

#include <cstddef>

namespace exactmeans::cost {

// CSR rows and centres that move (filter/, assign/sparse/).
//
// Costs of a row are in comparisons of the row with one centre by 8-bit scores. The values are
// older than this header, which has no record of how they were measured: take them as estimates.
inline constexpr double quantize_row = 60;     // quantise a row and find the bounds of its errors
inline constexpr double group_delta_sum = 30;  // sum the delta tables of four groups over a row
inline constexpr double delta_sum = 90;        // the same for one table, with the work of making it
// Rows that are left over come in small batches, which read every panel of centres from L3: their
// comparisons cost twice as much.
inline constexpr double leftover_factor = 2;
// A plan must promise this share of the cost of comparing all rows, and keep it, to be used.
inline constexpr double promised_share = 0.8, kept_share = 0.9;
// Bounds are of no use while more than 1 in this many rows changes its label: by groups or
// outliers; by one table beside the filter; by one table without the filter.
inline constexpr std::ptrdiff_t changed_for_bounds = 4, changed_for_table_alone = 16,
                                changed_for_table = 32;
// Without the filter: a table pays while it leaves at most this share of the rows.
inline constexpr double left_by_table = 0.6;
// Without the filter, previous centres are kept if at most 1 in this many labels changes, the table
// has at most this many features per nonzero of the rows, and a pass has at least this many
// multiply-adds per nonzero of the centres.
inline constexpr std::ptrdiff_t changed_for_history = 8, features_per_nonzero = 4,
                                terms_per_centre_nonzero = 500;
// Passes without a mechanism after it did not pay: the longest wait of its Backoff.
inline constexpr int longest_wait = 16;

// The 8-bit filter is for this many centres or more; an estimate of where it begins to pay.
inline constexpr std::ptrdiff_t filter_centres = 32;
// It pays if, of this many rows spread over the block, at most 1 in 2 needs the 16-bit refinement
// and at most 1 in 16 canonical scores. A probe of 256 rows costs less than 1 % of a pass over
// 50,000 rows.
inline constexpr std::ptrdiff_t probed_rows = 256, refined_share = 2, verified_share = 16;
// Codes of all centres take at most this many bytes.
inline constexpr double filter_bytes = 0x1p29;
// Codes of moved centres are replaced one by one while at most 1 in this many centres moved and at
// most 1 in this many features needs a larger scale.
inline constexpr std::ptrdiff_t moved_for_patch = 4, grown_for_patch = 8;
// Rows per call of the filter if all centres are one panel: few, so that rows stay in L1 and L2
// between quantising and scoring; more if bounds prune most of them. With several panels, a call
// takes as many rows as it can, because it reads every panel once.
inline constexpr std::ptrdiff_t rows_per_call = 128, pruned_rows_per_call = 1024;

// Windows of centres (filter/windowed_filter.hpp), for centres whose codes take more memory than
// `filter_bytes` or are mostly zeros: more centres than this, so that every window has two panels.
inline constexpr std::ptrdiff_t window_least_centres = 448;
// Units of 64 centres per window: two panels. Rows read a panel many times: it should fit L3 (6 MB
// for 32,000 features; one panel of more features would be read from memory).
inline constexpr std::ptrdiff_t window_units = 6;
inline constexpr double window_panel_bytes = 0x1p24;
// Making the codes of all windows, twice, should cost no more than scoring rows with this many
// nonzeros per feature: an estimate, not measured.
inline constexpr std::ptrdiff_t window_nonzeros_per_feature = 8;
// Rows per batch, which bounds the memory, and per task.
inline constexpr std::ptrdiff_t window_batch_rows = std::ptrdiff_t(1) << 18,
                                window_tile_rows = 4096;
// The filter does not pay with more candidates per row than this: refining one costs about as much
// as 8-bit scores of 200 centres, by an estimate that was not measured.
inline constexpr std::ptrdiff_t window_candidates = 16;

}  // namespace exactmeans::cost
