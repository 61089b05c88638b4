"""Write clusters and models to databases, and predict inside of them."""

from exactmeans.database.errors import DatabaseError
from exactmeans.sql.centers import centers_to_sql, from_sql
from exactmeans.sql.inside import predict_function, register
from exactmeans.sql.labels import labels_to_sql, predict_table
from exactmeans.sql.write import IfExists

__all__ = [
    "DatabaseError",
    "IfExists",
    "centers_to_sql",
    "from_sql",
    "labels_to_sql",
    "predict_function",
    "predict_table",
    "register",
]
