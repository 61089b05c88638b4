// Tuning constants: costs, and thresholds from which a mechanism is used. None of them changes a
// result. Each has its unit; the comment says what was measured and on which CPU. A value without a
// measurement is an estimate. core/bindings/cost_model.cpp exports to Python what the choice of an
// algorithm needs (src/exactmeans/fit/cost_model.py).
//
// Not here: the shapes of register tiles and panels (kernels/), and constants of proofs.
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

// The 8-bit filter for dense rows (filter/dense_filter.hpp, dense_filter_pass.hpp).
//
// Costs of a row are in multiply-adds of one float32 lane, measured on Zen 4 with AVX512-VNNI: 16
// of them take about a cycle.
inline constexpr double dense_score = 4;          // a canonical score, beside d multiply-adds
inline constexpr double dense_bound = 10;         // bounds of a score, beside its products
inline constexpr double dense_all_bounds = 18;    // more, if all of them are stored
inline constexpr double dense_filter_row = 1600;  // a row, whatever k
inline constexpr double dense_quantize = 12;      // a feature, if codes are not stored
inline constexpr double dense_candidate = 700,
                        dense_candidate_term = 2.5;  // a candidate; its terms
// The filter is tried if it would take this share of a plain pass with half a candidate per row,
// and kept while it takes this share. Below this many rows, quantising the centres costs too much.
inline constexpr double dense_promised_share = 0.75, dense_kept_share = 0.95;
inline constexpr std::ptrdiff_t dense_filter_rows = 2048;
// Passes without the filter after it did not pay: at first, and at most.
inline constexpr int dense_filter_wait = 4, dense_filter_longest_wait = 64;
// Rows whose codes stay in L2 while all centres are compared with them, and the most per task.
inline constexpr std::ptrdiff_t dense_block_rows = 96, dense_filter_task_rows = 960;
// Bounds of the scores of some rows with all centres, where all are needed: half of L2.
inline constexpr std::ptrdiff_t dense_bounds_bytes = 1 << 19;
// The filter for the m nearest centres gives a row up with more candidates than m and this many.
inline constexpr std::ptrdiff_t nearest_candidates = 48;
// Rows whose mean is the origin of the codes: an estimate.
inline constexpr std::ptrdiff_t origin_rows = 1024;

// Layouts of the centres (centres/).
//
// A layout with a column for every feature is the fastest while it fits in L3 (32 MB), or if at
// least this share of it is nonzero: lanes of zeros then cost less than posting lists. 8-bit
// layouts are cheap to pack again.
inline constexpr double cached_layout_bytes = 0x1p25, full_layout_bytes = 0x1p29,
                        small_codes_bytes = 0x1p26;
inline constexpr double full_layout_share = 0.02, small_codes_share = 0.01;
// Adding one posting takes as long as this many bytes of lanes.
inline constexpr std::ptrdiff_t posting_bytes = 64;
// Posting lists are chosen again if 1 in this many centres moved and the nonzeros changed by 1 in
// this many.
inline constexpr std::ptrdiff_t moved_for_choice = 4, changed_for_choice = 8;
// Values per task when centres move or are packed: a task has a fixed cost of some microseconds.
inline constexpr std::ptrdiff_t centre_values_per_task = 16384, packed_features_per_task = 64;
// Centres per group for CSR rows: a group costs one pass over the nonzeros of a row.
inline constexpr std::ptrdiff_t csr_group_centres = 16;
// Coordinates of a centre by which neighbours are found.
inline constexpr std::ptrdiff_t sketch_coordinates = 64;
// Entries between the prefetch of a posting list or packed column and its use: about the latency of
// L3.
inline constexpr std::ptrdiff_t postings_ahead = 24;

// Rows against all centres (scan/).
//
// Scores of a batch stay in L2 (1 MiB); shifted rows of a batch in L1 (32 KiB); a batch of CSR rows
// has about this many entries, whose packed copies stay in L2.
inline constexpr std::ptrdiff_t score_bytes = 1 << 20, shifted_bytes = 1 << 15,
                                csr_batch_entries = 1 << 16;
// Dense rows per task: about a million multiply-adds, in register tiles of 48 rows; two tiles at
// least if centres of at most this many values are read from L3 by every task.
inline constexpr std::ptrdiff_t dense_task_terms = 1 << 20, dense_task_rows = 480,
                                two_tiles_terms = 1 << 22;
// CSR rows per task: long, because a task reads every panel once; at most a second of work, so that
// Ctrl-C and load balance work.
inline constexpr std::ptrdiff_t csr_task_terms = std::ptrdiff_t(1) << 31, csr_task_rows = 16384,
                                csr_task_least_rows = 256;
// float32 scores pay if of this many probed rows at most 1 in 16 needs canonical scores.
inline constexpr std::ptrdiff_t float32_probed_rows = 128, float32_verified_share = 16;
// Inter-centre distances take k^2 products. They pay with this many rows per centre.
inline constexpr std::ptrdiff_t rows_per_centre_for_distances = 16;

// Algorithms with bounds (assign/).
//
// Rows per task if few of them survive: their values (4 MiB) stay in L3.
inline constexpr std::ptrdiff_t pruned_range_bytes = 4 << 20, pruned_range_rows = 8192,
                                pruned_range_least_rows = 256;
// Inter-centre distances save about this many times the distances that the last pass computed, and
// hardly any where projections prune.
inline constexpr std::ptrdiff_t saved_by_distances = 4;
// Bounds of this many rows are tested at a time; they stay in L1.
inline constexpr std::ptrdiff_t bounds_per_batch = 4096;

// Rows per leaf of the k-d tree: their values stay in L1. An estimate.
inline constexpr std::ptrdiff_t kdtree_leaf_rows = 128;
// Rows per task of the bounds by one table, and of norms and slack: long enough to hide the cost of
// starting a task.
inline constexpr std::ptrdiff_t table_rows_per_task = 2048, slack_rows_per_task = 256;

// Seeding, data and distances (seed/, data/, evaluate/). All are estimates.
//
// A feature of more than 1 in this many rows is stored for every row.
inline constexpr std::ptrdiff_t frequent_share = 16;
// Equal rows are merged if of this many sampled rows at least 1 in 8, and of all rows at least 1 in
// 4, equals another one.
inline constexpr std::ptrdiff_t dedup_sample_rows = 4096, dedup_sample_share = 8, dedup_share = 4;
// Rows per task: of distances to own centres; of distances to all centres, whose table stays in L2.
inline constexpr std::ptrdiff_t distance_rows_per_task = 256, transform_rows_per_task = 96;

// The choice of an algorithm (fit/policy.py).
//
// Costs are in multiply-adds of a plain Lloyd pass.
inline constexpr double short_pass = 5e6;    // a pass below this costs less than keeping bounds
inline constexpr double read_byte_cost = 4;  // of reading one byte from the page cache
inline constexpr double projected_score_cost =
    60;  // of comparing projections of a row and a centre
inline constexpr std::ptrdiff_t kdtree_max_features = 4;  // boxes prune better than bounds up to it
inline constexpr double products_bytes = 0x1p29;  // largest table of products without memory_limit
inline constexpr std::ptrdiff_t pca_min_features = 128;  // from which principal coordinates prune
inline constexpr std::ptrdiff_t pca_probe_rows = 1024;   // rows of the probe that decides about pca
inline constexpr double pca_max_share = 0.35;  // of distances left in the probe, for pca to be used
inline constexpr std::ptrdiff_t filter_probe_rows = 256;       // of the 8-bit filter for dense rows
inline constexpr std::ptrdiff_t inter_centre_probe_rows = 32;  // of the probe of those distances
// Bounds begin when at most this share of the labels changes.
inline constexpr double changed_share_for_bounds_csr = 0.1, changed_share_for_bounds_dense = 0.03;
inline constexpr double moving_no_gain_share = 0.8;  // of distances from which moving saves nothing

// In passes of plain Lloyd:
inline constexpr double cheap_first_pass =
    1.75;                                    // bounds whose first pass costs no more begin at once
inline constexpr double average_loss = 0.1;  // per pass, that trying bounds may cost
inline constexpr double expected_saving = 0.15;  // per pass, of bounds that work
inline constexpr double max_loss = 0.5;          // after the first pass, before bounds are given up
inline constexpr double pca_first_pass = 0.5;  // extra cost of it: 0.44 for SIFT, k = 1024, AVX-512
inline constexpr double pca_probe_share = 0.02;  // of all passes, that the probe may cost

// Passes over dense rows with k centres of d features cost, in multiply-adds and beside the scores:
// without bounds, per row and its features; with bounds, per row that they do not decide, its
// features and centres, and per row in any case; per distance. First passes also allocate bounds.
inline constexpr double plain_row = 100, plain_row_feature = 8;
inline constexpr double hamerly_row = 1000, hamerly_row_feature = 25, hamerly_any_row = 700,
                        hamerly_distance = 6;
inline constexpr double groups_row = 600, groups_row_feature = 5, groups_row_centre = 11,
                        groups_any_row = 200, groups_distance = 100;
inline constexpr double bounds_distance_feature = 1.1;  // a group reuses loaded values less
inline constexpr double first_row = 2200, first_row_feature = 20;
// The share of distances that a first pass with bounds computes to find labels, if inter-centre
// distances leave no other centre; the rest grows as the root of the share that they leave.
// Measured shares: 0.42 to 0.52 where they leave 1 %, 0.52 to 0.64 for 7 to 11 %, 0.86 for 39 %.
inline constexpr double first_distances = 0.45;
// The same per row and centre where the 8-bit filter gives the first bounds, all of which are
// converted and stored. With k = 1000 such a pass takes as long as 3.1 filtered plain ones for
// glove, 2.7 for SIFT, 1.65 for MiniLM and 1.5 for MNIST (AVX-512 VNNI, two threads).
inline constexpr double filtered_first_centre = 50;
inline constexpr double kdtree_distance = 8;
// Building a kd-tree, per row, and the share of a plain pass that it saves: birch1, k = 100, where
// it took 3 ms and a plain pass 0.4. More centres save more.
inline constexpr double kdtree_build_row = 5000, kdtree_saving = 0.45;
// The same for CSR rows: per row (times bytes per value), in any case, and per distance and
// nonzero.
inline constexpr double csr_bounds_row_bytes = 6400, csr_bounds_any_row = 40,
                        csr_bounds_distance_nonzero = 2;
// The probe for pca, per feature, and per feature and centre. One thread does most of it: 11 to 57
// ms with 128, 384 and 784 features, 100 and 1024 clusters, while a plain pass does 5e7
// multiply-adds in a millisecond.
inline constexpr double pca_probe_feature = 4e6, pca_probe_feature_centre = 5.5e3;
// Where an algorithm is considered at all: estimates. Terms are features (or nonzeros) times k.
inline constexpr std::ptrdiff_t kdtree_min_rows = 10'000, kdtree_min_centres = 32,
                                pca_min_centres = 64, bounds_min_centres = 8,
                                bounds_min_terms = 400;
// products takes over if its pass costs this share of the current one.
inline constexpr double products_share = 0.6;
// Bounds that were given up are tried again when 1 in this many of the labels changes that changed
// then.
inline constexpr std::ptrdiff_t retry_bounds = 16;

// A pass over sparse rows with the 8-bit filter takes this share of the multiply-adds; a CSR row
// costs this many more per centre.
inline constexpr double filtered_share = 0.6, csr_score_cost = 6;
// Updating one stored product costs this many multiply-adds times 4 bytes per value: with a column
// for every feature, and with posting lists, which make scores more expensive.
inline constexpr double product_update_cost = 32, product_update_cost_postings = 12;

// From so many seeds of a node of a tree on, transposing its CSR rows pays: it costs about as much
// as three candidates that are compared with every row. An estimate.
inline constexpr std::ptrdiff_t transpose_seeds = 4;

// Size limits (limits/reach.hpp). The first sample has about this many pairs of row and centre, but
// at least this many rows per centre: prices of smaller samples are of little use. With 2^20 pairs
// the first assignment of 23,000 x 50, k=10 took 32 ms instead of 13.
inline constexpr std::ptrdiff_t sampled_options = 1 << 15, sampled_rows = 16;
// Bytes of an option of an open row, with its heaps, and the most options of a pass: 400 MB. Not
// tuned.
inline constexpr std::ptrdiff_t option_bytes = 48, most_options = 1 << 23;

}  // namespace exactmeans::cost
