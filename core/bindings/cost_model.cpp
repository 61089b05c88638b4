// The tuning constants that Python needs, as attributes of _core.cost_model.
#include "exactmeans/base/cost_model.hpp"

#include "bindings.hpp"

namespace exactmeans {

void bind_cost_model(nb::module_& m) {
    nb::module_ model = m.def_submodule("cost_model");
    const auto set = [&](const char* name, auto value) { model.attr(name) = value; };
    set("filter_centres", cost::filter_centres);
    set("large_node_rows", cost::large_node_rows);
    set("cached_layout_bytes", cost::cached_layout_bytes);
    set("rows_per_centre_for_distances", cost::rows_per_centre_for_distances);
    set("short_pass", cost::short_pass);
    set("read_byte_cost", cost::read_byte_cost);
    set("projected_score_cost", cost::projected_score_cost);
    set("kdtree_max_features", cost::kdtree_max_features);
    set("products_bytes", cost::products_bytes);
    set("pca_min_features", cost::pca_min_features);
    set("pca_probe_rows", cost::pca_probe_rows);
    set("pca_max_share", cost::pca_max_share);
    set("filter_probe_rows", cost::filter_probe_rows);
    set("inter_centre_probe_rows", cost::inter_centre_probe_rows);
    set("changed_share_for_bounds_csr", cost::changed_share_for_bounds_csr);
    set("changed_share_for_bounds_dense", cost::changed_share_for_bounds_dense);
    set("cheap_first_pass", cost::cheap_first_pass);
    set("average_loss", cost::average_loss);
    set("expected_saving", cost::expected_saving);
    set("max_loss", cost::max_loss);
    set("pca_first_pass", cost::pca_first_pass);
    set("pca_probe_share", cost::pca_probe_share);
    set("filtered_share", cost::filtered_share);
    set("csr_score_cost", cost::csr_score_cost);
    set("dense_score", cost::dense_score);
    set("plain_row", cost::plain_row);
    set("plain_row_feature", cost::plain_row_feature);
    set("hamerly_row", cost::hamerly_row);
    set("hamerly_row_feature", cost::hamerly_row_feature);
    set("hamerly_any_row", cost::hamerly_any_row);
    set("hamerly_distance", cost::hamerly_distance);
    set("groups_row", cost::groups_row);
    set("groups_row_feature", cost::groups_row_feature);
    set("groups_row_centre", cost::groups_row_centre);
    set("filtered_first_centre", cost::filtered_first_centre);
    set("first_distances", cost::first_distances);
    set("groups_any_row", cost::groups_any_row);
    set("groups_distance", cost::groups_distance);
    set("bounds_distance_feature", cost::bounds_distance_feature);
    set("first_row", cost::first_row);
    set("first_row_feature", cost::first_row_feature);
    set("kdtree_distance", cost::kdtree_distance);
    set("kdtree_build_row_level", cost::kdtree_build_row_level);
    set("kdtree_saving", cost::kdtree_saving);
    set("kdtree_leaf_rows", cost::kdtree_leaf_rows);
    set("kdtree_least_leaves", cost::kdtree_least_leaves);
    set("expected_passes", cost::expected_passes);
    set("moving_least_passes", cost::moving_least_passes);
    set("csr_bounds_row_bytes", cost::csr_bounds_row_bytes);
    set("csr_bounds_any_row", cost::csr_bounds_any_row);
    set("csr_bounds_distance_nonzero", cost::csr_bounds_distance_nonzero);
    set("pca_probe_feature", cost::pca_probe_feature);
    set("pca_probe_feature_centre", cost::pca_probe_feature_centre);
    set("kdtree_min_rows", cost::kdtree_min_rows);
    set("kdtree_min_centres", cost::kdtree_min_centres);
    set("pca_min_centres", cost::pca_min_centres);
    set("bounds_min_centres", cost::bounds_min_centres);
    set("bounds_min_terms", cost::bounds_min_terms);
    set("products_share", cost::products_share);
    set("retry_bounds", cost::retry_bounds);
    set("product_update_cost", cost::product_update_cost);
    set("product_update_cost_postings", cost::product_update_cost_postings);
}

}  // namespace exactmeans
