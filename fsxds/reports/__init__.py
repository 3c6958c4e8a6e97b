"""Problems and differences as people, editors and pipelines read them, one module per format; pure."""
