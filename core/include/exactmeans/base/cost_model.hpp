// Tuning constants: costs, thresholds from which a mechanism is used, and sizes of tasks, batches
// and samples. None of them changes a label or a centre. Each has its unit; the comment says what
// was measured and on which CPU. A value without a measurement is an estimate.
// core/bindings/cost_model.cpp exports to Python what it needs, so that no constant is in both
// languages.
//
// Not here: the shapes of register tiles and panels (kernels/), and constants of proofs.
#pragma once

#include <cstddef>

namespace exactmeans::cost {

// Tasks, for loops over rows, centres or features. All are estimates: a task has a fixed cost of
// some microseconds, and load balance and Ctrl-C need several tasks per thread.
//
// Tasks per thread: of loops whose tasks have a large fixed cost; of all others.
inline constexpr std::ptrdiff_t tasks_per_thread = 4, short_tasks_per_thread = 16;
// Rows per task: of loops that read a row once (surveys, hashes, norms of seeding); of loops that
// compute norms, codes or projections; of loops that read only one number per row.
inline constexpr std::ptrdiff_t read_rows_per_task = 1024, measured_rows_per_task = 256,
                                label_rows_per_task = 16384;
// Numbers between two polls for Ctrl-C of a loop on one thread.
inline constexpr std::ptrdiff_t numbers_per_poll = 1 << 20;
// Values below which a loop is not worth waking a thread.
inline constexpr std::ptrdiff_t values_for_threads = 16384;

// Prefetches.
//
// Rows that are read in random order are prefetched this many rows ahead, at most this many cache
// lines of each. Estimates.
inline constexpr std::ptrdiff_t prefetch_rows = 4, prefetch_lines = 16;
// Rows ahead where most rows are not read. For covtype, with 432 bytes per row, distances took a
// third less time with 12 than without a prefetch, and a fifth less with 4.
inline constexpr std::ptrdiff_t picked_rows_ahead = 12;
// Entries of CSR rows between a prefetch and the use of its data, for data in memory: about its
// latency. Features of transposed rows ahead. Estimates.
inline constexpr std::ptrdiff_t csr_entries_ahead = 32, transposed_features_ahead = 8;

// Delta bounds of CSR rows (assign/sparse/policy.hpp).
//
// Costs are per row, in 8-bit scores of one centre. The measurements behind them are not recorded:
// take them as estimates.
inline constexpr double quantize_row = 60;     // quantise a row and bound its errors
inline constexpr double group_delta_sum = 30;  // sum the delta tables of four groups over a row
inline constexpr double delta_sum = 90;  // sum one table over a row, and its share of making it
// Survivors are scored in small batches. Each batch reads every panel of centres from L3, so an
// 8-bit score of a survivor costs this many times as much.
inline constexpr double survivor_factor = 2;
// Shares of the cost of comparing all rows with all centres by the 8-bit filter. A plan with
// outliers is used if its predicted cost is below the first; every plan is repeated while its
// measured cost is at most the second.
inline constexpr double promised_share = 0.8, kept_share = 0.9;
// Bounds are used while at most 1 in this many labels changes per pass: bounds by groups or
// outliers; by one table, with the 8-bit filter; by one table, without it.
inline constexpr std::ptrdiff_t changed_for_bounds = 4, changed_for_table_alone = 16,
                                changed_for_table = 32;
// Places of the centres are assigned to groups again if more than 1 in this many moved.
inline constexpr std::ptrdiff_t moved_for_groups = 4;
// Values of the table of changes that are computed at a time, in L1.
inline constexpr std::ptrdiff_t table_block_values = 1 << 13;
// Without the 8-bit filter, the table is used while at most this share of the rows survives.
inline constexpr double table_survivor_share = 0.6;
// Without the 8-bit filter, the centres of a pass are kept for the next table if at most 1 in this
// many labels changes, there are at most this many features per nonzero of the rows, and a pass has
// at least this many multiply-adds per nonzero of the centres.
inline constexpr std::ptrdiff_t changed_for_history = 8, features_per_nonzero = 4,
                                terms_per_centre_nonzero = 500;
// The most passes for which a Backoff skips a mechanism that did not pay.
inline constexpr int longest_wait = 16;

// The 8-bit filter for CSR rows (filter/quantized_filter.hpp).

// The fewest centres for which the filter is tried: an estimate of where it begins to pay.
inline constexpr std::ptrdiff_t filter_centres = 32;
// The filter is used if, of `probed_rows` rows spread over the block, at most 1 in `refined_share`
// needs the 16-bit refinement and at most 1 in `verified_share` canonical scores. A probe of 256
// rows costs less than 1 % of a pass over 50,000 rows.
inline constexpr std::ptrdiff_t probed_rows = 256, refined_share = 2, verified_share = 16;
// The most bytes of the codes of all centres.
inline constexpr double filter_bytes = 0x1p29;
// A new scale of a feature leaves room for values that grow by this factor.
inline constexpr float scale_headroom = 1 + 0x1p-4f;
// Features per task, at least. Features whose 8-bit codes take `codes_block_bytes` are quantised at
// a time, in L2; at least `codes_block_features`. 16-bit codes per task that are set to zero.
inline constexpr std::ptrdiff_t features_per_task = 256, codes_block_bytes = 1 << 17,
                                codes_block_features = 16, zero_codes_per_task = 1 << 16;
// Codes are updated centre by centre if at most 1 in this many centres moved and at most 1 in this
// many features needs a larger scale; otherwise all codes are made anew.
inline constexpr std::ptrdiff_t moved_for_patch = 4, grown_for_patch = 8;
// Rows per call of the filter if all centres are one panel: few, so that rows stay in L1 and L2
// between quantising and scoring; more if bounds prune most of them. With several panels, a call
// takes all rows of its task, because it reads every panel once.
inline constexpr std::ptrdiff_t rows_per_call = 128, pruned_rows_per_call = 1024;

// Windows of centres (filter/windowed_filter.hpp), for centres whose codes take more memory than
// `filter_bytes` or are mostly zeros. They need more centres than this, so that every window has
// two panels.
inline constexpr std::ptrdiff_t window_least_centres = 448;
// Units of 64 centres per window: two panels; and the most bytes of a panel. A tile of rows reads a
// panel many times, so the panel should fit L3: with 32,000 features it takes 6 MB.
inline constexpr std::ptrdiff_t window_units = 6;
inline constexpr double window_panel_bytes = 0x1p24;
// The fewest nonzeros of the rows per feature for which making the codes of all windows, twice,
// costs no more than scoring the rows. An estimate.
inline constexpr std::ptrdiff_t window_nonzeros_per_feature = 8;
// Rows per batch, which bounds the memory, and per task.
inline constexpr std::ptrdiff_t window_batch_rows = std::ptrdiff_t(1) << 18,
                                window_tile_rows = 4096;
// The most candidates per row, on average. Refining a candidate costs about as much as 8-bit scores
// of 200 centres: an estimate.
inline constexpr std::ptrdiff_t window_candidates = 16;
// Scores of pairs, centre by centre: rows per call of the kernel, and the most pairs per task.
inline constexpr std::ptrdiff_t aggregated_rows = 8, aggregated_pairs_per_task = 4096;

// The 8-bit filter for dense rows (filter/dense_filter.hpp, dense_filter_pass.hpp).
//
// Costs are in multiply-adds of one float32 lane, measured on Zen 4 with AVX512-VNNI, where 16 of
// them take about a cycle.
inline constexpr double dense_score = 4;          // a canonical score, beside d multiply-adds
inline constexpr double dense_bound = 10;         // bounds of a score, beside its products
inline constexpr double dense_all_bounds = 18;    // more per score, if all bounds are stored
inline constexpr double dense_filter_row = 1600;  // a row, for any k
// A feature of a row, if codes are not stored. Zen 4 takes 12. Float passes of Zen 5 are twice as
// fast per cycle, but quantising is not: with 12, `predict` of glove, k = 100, took 1.2 times as
// long with the filter as without.
inline constexpr double dense_quantize = 24;
// Beginning a fit whose codes are stored, per row and per feature of a row: new memory, and a first
// pass without labels, which leaves more candidates. Fits of 2 to 31 passes over glove, SIFT,
// MiniLM and MNIST with k = 20 and 100 took 150 to 300 ns per row, of which a plain pass does 100
// multiply-adds in 1 ns (AVX-512 of Zen 5).
inline constexpr double dense_first_row = 15'000, dense_first_feature = 20;
inline constexpr double dense_candidate = 700,
                        dense_candidate_term = 2.5;  // a candidate; each of its terms
// Shares of the cost of a plain pass. The filter is tried if its predicted cost, with half a
// candidate per row, is below the first, and kept while its measured cost is below the second.
inline constexpr double dense_promised_share = 0.75, dense_kept_share = 0.95;
// The fewest rows for which quantising the centres pays.
inline constexpr std::ptrdiff_t dense_filter_rows = 2048;
// Passes without the filter after it did not pay: after the first failure; the most after several.
inline constexpr int dense_filter_wait = 4, dense_filter_longest_wait = 64;
// Rows of a block, whose codes stay in L2 while all centres are compared with them; and the most
// rows per task.
inline constexpr std::ptrdiff_t dense_block_rows = 96, dense_filter_task_rows = 960;
// Bytes of the bounds of all scores of a block, where all are needed: half of L2.
inline constexpr std::ptrdiff_t dense_bounds_bytes = 1 << 19;
// A row with more than m plus this many candidates for its m nearest centres is compared with all
// centres.
inline constexpr std::ptrdiff_t nearest_candidates = 48;
// Rows whose mean is the origin of the codes: an estimate.
inline constexpr std::ptrdiff_t origin_rows = 1024;
// Rows that are shifted at a time before they are quantised, in L1.
inline constexpr std::ptrdiff_t shifted_code_rows = 32;
// First bounds store the codes of all rows if the filter compares at least 1 in this many of them.
inline constexpr std::ptrdiff_t compared_for_codes = 4;
// Rows whose first bounds by groups are computed at a time, in L1.
inline constexpr std::ptrdiff_t group_bounds_rows = 192;

// Layouts of the centres (centres/).
//
// A layout of sparse centres has a column for every feature if it fits L3 (32 MB), or if at least
// `full_layout_share` of its values are nonzero and it takes at most `full_layout_bytes`: lanes of
// zeros then cost less than posting lists. 8-bit codes of up to `small_codes_bytes` are cheap to
// pack again, so `small_codes_share` is enough for them.
inline constexpr double cached_layout_bytes = 0x1p25, full_layout_bytes = 0x1p29,
                        small_codes_bytes = 0x1p26;
inline constexpr double full_layout_share = 0.02, small_codes_share = 0.01;
// Adding one posting takes as long as this many bytes of lanes.
inline constexpr std::ptrdiff_t posting_bytes = 64;
// Which features are rare is decided again if at least 1 in this many centres moved, and the number
// of nonzeros changed by more than 1 in this many.
inline constexpr std::ptrdiff_t moved_for_choice = 4, changed_for_choice = 8;
// Values, or features, per task when centres move or are packed: a task has a fixed cost of some
// microseconds.
inline constexpr std::ptrdiff_t centre_values_per_task = 16384, packed_features_per_task = 64;
// Centres per group for CSR rows: a row reads all its nonzeros once per group. An estimate.
inline constexpr std::ptrdiff_t csr_group_centres = 16;
// Coordinates of a centre in the sketch by which groups of neighbours are found. An estimate.
inline constexpr std::ptrdiff_t sketch_coordinates = 64;
// Steps of the power iteration that divides them.
inline constexpr int power_iterations = 8;
// Entries of a row between the prefetch of a posting list and its use: about the latency of L3.
inline constexpr std::ptrdiff_t postings_ahead = 24;

// Rows against all centres (scan/).
//
// Scores of a batch stay in L2 (1 MiB); shifted rows of a batch stay in L1 (32 KiB); a batch of CSR
// rows has about `csr_batch_entries` entries, whose packed copies stay in L2.
inline constexpr std::ptrdiff_t score_bytes = 1 << 20, shifted_bytes = 1 << 15,
                                csr_batch_entries = 1 << 16;
// Dense rows per task: about `dense_task_terms` multiply-adds, in register tiles of 48 rows, at
// most `dense_task_rows`. At least two tiles if the centres have at most `two_tiles_terms` values,
// which every task reads from L3.
inline constexpr std::ptrdiff_t dense_task_terms = 1 << 20, dense_task_rows = 480,
                                two_tiles_terms = 1 << 22;
// CSR rows per batch, at least.
inline constexpr std::ptrdiff_t csr_batch_rows = 16;
// CSR rows per task: many, because a task reads every panel once; at most about a second of work,
// for load balance and Ctrl-C.
inline constexpr std::ptrdiff_t csr_task_terms = std::ptrdiff_t(1) << 31, csr_task_rows = 16384,
                                csr_task_least_rows = 256;
// float32 scores are used if, of `float32_probed_rows` rows, at most 1 in `float32_verified_share`
// needs canonical scores.
inline constexpr std::ptrdiff_t float32_probed_rows = 128, float32_verified_share = 16;
// The fewest rows per centre for which inter-centre distances, k^2 products, pay. An estimate.
inline constexpr std::ptrdiff_t rows_per_centre_for_distances = 16;
// Centres per task that are compared with all others.
inline constexpr std::ptrdiff_t compared_centres_per_task = 64;

// Projections (project/). Rows whose principal axes are used; the most axes, with which coordinates
// of a row take about as many bytes as three cache lines; rounds of subspace iteration; centres per
// task. Estimates.
inline constexpr std::ptrdiff_t projection_sampled_rows = 256, most_axes = 48,
                                projected_centres_per_task = 16;
inline constexpr int subspace_iterations = 6;

// Algorithms with bounds (assign/).
//
// Rows per task if few of them survive: as many as fit in `pruned_range_bytes`, so that their
// values stay in L3, within the two other limits.
inline constexpr std::ptrdiff_t pruned_range_bytes = 4 << 20, pruned_range_rows = 8192,
                                pruned_range_least_rows = 256;
// Inter-centre distances are expected to save this many times as many distances as the last pass
// computed; if projections prune too, as many as it computed. An estimate.
inline constexpr std::ptrdiff_t saved_by_distances = 4;
// Rows whose bounds are tested at a time; the bounds stay in L1.
inline constexpr std::ptrdiff_t bounds_per_batch = 4096;

// Rows per leaf of the k-d tree: at most 32 KiB in float64, so that they stay in L1. Testing a
// candidate against a box costs as much as comparing it with some 200 rows. With 1024 rows instead
// of 128, fits of 100,000 rows of 2 or 3 features, k = 1000, take 20 to 40 % less (AVX2 and AVX-512
// of Zen 5); 2048 rows gain no more. For load balance, a tree has at least `kdtree_least_leaves`
// leaves, unless a leaf would have fewer than `kdtree_small_leaf_rows` rows.
inline constexpr std::ptrdiff_t kdtree_leaf_rows = 1024, kdtree_small_leaf_rows = 128,
                                kdtree_least_leaves = 32;
// Rows by which the feature of a split is chosen; leaves per task that are filled; the level whose
// subtrees are the tasks of a pass. Estimates.
inline constexpr std::ptrdiff_t kdtree_sampled_rows = 256, kdtree_leaves_per_task = 16,
                                kdtree_task_level = 5;
// Rows per task of the bounds by one table: enough to hide the cost of starting a task.
inline constexpr std::ptrdiff_t table_rows_per_task = 2048;

// Kept products (assign/sparse/products.hpp). Values of a centre that are sampled for the common
// factor of its change. Uncertain rows are compared with all centres, instead of their candidates,
// if there are more than 1 in `uncertain_share` of all, plus `uncertain_rows`. Tiles of rows per
// task. Estimates.
inline constexpr std::ptrdiff_t change_samples = 256, uncertain_share = 32, uncertain_rows = 64,
                                product_tiles_per_task = 64;

// Seeding, data and distances (seed/, data/, evaluate/). All are estimates.
//
// The prefilter of seed/csr.hpp is tried from this many seeds on, and used if fewer than 1 in
// `prefilter_share` rows survive: a distance computed for a single row costs about ten times its
// share of a pass over all rows.
inline constexpr std::ptrdiff_t prefilter_seeds = 64, prefilter_share = 25;
// Visits without the prefilter, or without the triangle inequality, after it did not pay: after the
// first failure; the most after several.
inline constexpr int seed_wait = 4, seed_longest_wait = 256;
// The triangle inequality pays if it leaves less than this share of the pairs of a row and a
// candidate.
inline constexpr double triangle_share = 0.7;
// Rows are listed by seed if at most 1 in `listed_share` pairs is left, for at least `listed_rows`
// rows; no longer if more than 1 pair in `unlisted_share` rows is left. Lists access rows in random
// order, so they pay only if they skip most rows. Rows of lists per task.
inline constexpr std::ptrdiff_t listed_share = 40, listed_rows = 4096, unlisted_share = 2,
                                listed_rows_per_task = 1024;
// Bytes of a row that are prefetched; rows ahead whose projections are.
inline constexpr std::ptrdiff_t seed_prefetch_bytes = 512, seed_rows_ahead = 4;
// Rows that become nearer to the new seed, from which on threads update them.
inline constexpr std::ptrdiff_t updates_for_threads = 4096;
// Bytes of the rows that an evaluation of candidates stores: of all rows; per row of a block that
// is read again in every step.
inline constexpr std::ptrdiff_t evaluation_bytes = 1 << 26, streamed_evaluation_bytes = 16;
// Transposed rows: at least this many slabs, of at least and usually at most these numbers of
// chunks of rows, so that their products with a point stay in L2.
inline constexpr std::ptrdiff_t least_slabs = 4, least_slab_chunks = 4, slab_chunks = 32;
// A feature is frequent if more than 1 in this many rows has it: the prefilter of seed/csr.hpp
// bounds its products instead of computing them.
inline constexpr std::ptrdiff_t frequent_share = 16;
// Duplicate rows are merged if at least 1 in `dedup_sample_share` of `dedup_sample_rows` sampled
// rows, and then at least 1 in `dedup_share` of all rows, equals an earlier one.
inline constexpr std::ptrdiff_t dedup_sample_rows = 4096, dedup_sample_share = 8, dedup_share = 4;
// Rows per task: of distances to the centres of labels; of distances to all centres, whose scores
// stay in L2.
inline constexpr std::ptrdiff_t distance_rows_per_task = 256, transform_rows_per_task = 96;
// The nearest centres: bytes of the scores of a batch of rows; the most CSR rows of a batch.
inline constexpr std::ptrdiff_t nearest_score_bytes = 1 << 21, nearest_csr_rows = 1024;

// Updates of the centres (update/). All are estimates.
//
// Rows per piece, to outweigh clearing and merging its sums: of sparse sums; of dense sums, at
// least; and of dense sums as many rows as have this many values per feature.
inline constexpr std::ptrdiff_t sparse_piece_rows = 2048, dense_piece_rows = 1024,
                                piece_values_per_feature = 8;
// Values of a sparse accumulator that fit L2. A sum is changed in place if fewer than 1 in
// `few_features` of its features change; otherwise it is merged anew.
inline constexpr std::ptrdiff_t accumulator_values = 1 << 17, few_features = 8;
// Features per task of medians of dense rows.
inline constexpr std::ptrdiff_t median_features_per_task = 64;

// The choice of an algorithm (fit/policy.py).
//
// Costs are in multiply-adds of a plain Lloyd pass.
//
// A pass of fewer multiply-adds costs less than keeping bounds.
inline constexpr double short_pass = 5e6;
// Reading one byte from the page cache.
inline constexpr double read_byte_cost = 4;
// Comparing the projections of a row and a centre.
inline constexpr double projected_score_cost = 60;
// The most features for which the boxes of kdtree prune better than bounds.
inline constexpr std::ptrdiff_t kdtree_max_features = 4;
// The most bytes of a table of products without memory_limit.
inline constexpr double products_bytes = 0x1p29;
// The fewest features for which pca is considered; rows of its probe; the largest share of the
// distances that the probe may have to compute in spite of the projections.
inline constexpr std::ptrdiff_t pca_min_features = 128, pca_probe_rows = 1024;
inline constexpr double pca_max_share = 0.35;
// Rows of the probes of the 8-bit filter for dense rows, and of inter-centre distances.
inline constexpr std::ptrdiff_t filter_probe_rows = 256, inter_centre_probe_rows = 32;
// Bounds begin when at most this share of the labels changes in a pass.
inline constexpr double changed_share_for_bounds_csr = 0.1, changed_share_for_bounds_dense = 0.03;

// Costs in passes of plain Lloyd.
//
// Bounds begin at once if their first pass costs at most this.
inline constexpr double cheap_first_pass = 1.75;
// The most that bounds without gain may cost: per pass of the fit, on average; and after their
// first pass, before the fit returns to plain passes.
inline constexpr double average_loss = 0.1, max_loss = 0.5;
// The saving per pass that is expected of bounds.
inline constexpr double expected_saving = 0.15;
// The extra cost of the first pass of pca: 0.44 for SIFT, k = 1024, AVX-512.
inline constexpr double pca_first_pass = 0.5;
// The largest share of the cost of all passes that the probe for pca may take.
inline constexpr double pca_probe_share = 0.02;

// Costs of passes over dense rows, in multiply-adds beside the scores. Plain passes: per row, and
// per feature of a row. Passes with bounds: per survivor, its features and its centres; per row;
// per distance. First passes also allocate the bounds.
inline constexpr double plain_row = 100, plain_row_feature = 8;
inline constexpr double hamerly_row = 1000, hamerly_row_feature = 25, hamerly_any_row = 700,
                        hamerly_distance = 6;
inline constexpr double groups_row = 600, groups_row_feature = 5, groups_row_centre = 11,
                        groups_any_row = 200, groups_distance = 100;
// A multiply-add of a distance with bounds: a group reuses loaded values less than a plain pass.
inline constexpr double bounds_distance_feature = 1.1;
inline constexpr double first_row = 2200, first_row_feature = 20;
// The share of distances that the first pass with bounds computes if inter-centre distances prune
// all other centres. With s the share that they leave, the pass computes first_distances + (1 -
// first_distances) sqrt(s) of all. Measured: 0.42 to 0.52 for s = 1 %, 0.52 to 0.64 for 7 to 11 %,
// 0.86 for 39 %.
inline constexpr double first_distances = 0.45;
// Cost per row and centre of a first pass whose bounds come from the 8-bit filter, which converts
// and stores all of them. With k = 1000 such a pass takes as long as 3.1 filtered plain ones for
// glove, 2.7 for SIFT, 1.65 for MiniLM and 1.5 for MNIST (AVX-512 VNNI, two threads).
inline constexpr double filtered_first_centre = 50;
// kdtree: beside d multiply-adds per distance.
inline constexpr double kdtree_distance = 8;
// Building a kd-tree, per row and level: 1,500 for 100,000 rows of 3 features, 2,200 for 4
// features, 2,500 for a million rows of 3. The tree saves a share of a plain pass that halves with
// every feature from the second on: normal clusters of 2 features saved 0.43 to 0.60 of it with 100
// to 1000 centres, uniform rows of 3 features 0.26 to 0.46, of 4 features at most 0.12 (100,000
// rows, AVX-512 of Zen 5).
inline constexpr double kdtree_build_row_level = 2000, kdtree_saving = 1;
// A fit is expected to make this many passes if `max_iter` is larger. An estimate.
inline constexpr std::ptrdiff_t expected_passes = 30;
// The fewest passes for which `moving` replaces `lloyd`. Against lloyd, text with k = 100 and 1000
// took 1.03 to 1.14 times as long with 5 iterations, 0.85 to 1.05 with 10, 0.59 to 0.88 with 30
// (20news, acl_anthology, cve, Zen 5): bounds begin in new memory.
inline constexpr std::ptrdiff_t moving_least_passes = 8;
// Passes with bounds over CSR rows: per survivor, times the bytes of a value (1600 multiply-adds
// for float32, 800 for float64); per row; per distance and nonzero.
inline constexpr double csr_bounds_row_bytes = 6400, csr_bounds_any_row = 40,
                        csr_bounds_distance_nonzero = 2;
// The probe for pca, per feature, and per feature and centre. One thread does most of it: 11 to 57
// ms with 128, 384 and 784 features, 100 and 1024 clusters. A plain pass does 5e7 multiply-adds in
// a millisecond.
inline constexpr double pca_probe_feature = 4e6, pca_probe_feature_centre = 5.5e3;
// The smallest problems for which an algorithm is considered: estimates. Terms are features (or
// nonzeros of a row) times k.
inline constexpr std::ptrdiff_t kdtree_min_rows = 10'000, kdtree_min_centres = 32,
                                pca_min_centres = 64, bounds_min_centres = 8,
                                bounds_min_terms = 400;
// `products` begins if its pass costs less than this share of the current one.
inline constexpr double products_share = 0.6;
// After bounds failed in a pass in which c labels changed, they are tried again when at most c /
// retry_bounds labels change.
inline constexpr std::ptrdiff_t retry_bounds = 16;

// A pass over CSR rows: a multiply-add of the 8-bit filter costs this share of a plain one; a score
// costs this many multiply-adds beside those of its nonzeros.
inline constexpr double filtered_share = 0.6, csr_score_cost = 6;
// Updating one stored product, times the bytes of a value (8 multiply-adds for float32, 4 for
// float64). Posting lists make scores more expensive, so that an update costs fewer of their
// multiply-adds.
inline constexpr double product_update_cost = 32, product_update_cost_postings = 12;

// The fewest seeds of a node of a tree for which transposing its CSR rows pays: it costs about as
// much as comparing three candidates with every row. An estimate.
inline constexpr std::ptrdiff_t transpose_seeds = 4;
// Nodes with more rows use all threads and the algorithms of KMeans; all others take one thread
// each. An estimate.
inline constexpr std::ptrdiff_t large_node_rows = 16384;
// Rows of a node whose scores are computed at a time.
inline constexpr std::ptrdiff_t node_tile_rows = 96;
// Bisection: while a tile of rows is scored, the rows of the next one are prefetched (more rows
// would leave L1 before they are read); rows per task; rows whose mean is the reference point.
inline constexpr std::ptrdiff_t bisection_tile_rows = 16, bisection_rows_per_task = 3840,
                                bisection_sampled_rows = 256;
// Balanced children: the factor by which a reach that was too narrow is widened.
inline constexpr double balance_widening = 8;

// Size limits (limits/reach.hpp). The first sample has about `sampled_options` pairs of a row and a
// centre, but at least `sampled_rows` rows per centre: smaller samples give prices that are far
// off. With 2^20 pairs the first assignment of 23,000 x 50, k=10 took 32 ms instead of 13.
inline constexpr std::ptrdiff_t sampled_options = 1 << 15, sampled_rows = 16;
// Bytes of an option of an open row, with its heaps; the most options of a pass (400 MB). Not
// tuned.
inline constexpr std::ptrdiff_t option_bytes = 48, most_options = 1 << 23;
// Rows per task of passes with prices; paths between two polls for Ctrl-C.
inline constexpr std::ptrdiff_t priced_rows_per_task = 960, paths_per_poll = 1024;
// Each sample has this many times as many rows as the one before. A pass with too many options is
// repeated with this share of the reach, at most `wide_passes` times.
inline constexpr std::ptrdiff_t sample_step = 4;
inline constexpr double narrowing = 0.25;
inline constexpr int wide_passes = 40;
// The reach after a sample of m rows takes this many times sqrt(k / m) of the rows: their labels
// may follow from prices that are wrong by as much. After the first assignment, when centres move
// most, it takes 1 in `first_open_share` rows; later it is the range by which prices changed, or
// half of it if more rows than that are open, but always takes `open_rows_per_centre` k rows.
inline constexpr double sample_error = 3;
inline constexpr std::ptrdiff_t first_open_share = 20, open_rows_per_centre = 4;

}  // namespace exactmeans::cost
