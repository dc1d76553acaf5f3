"""Shards: the Parquet files through which the commands talk."""
