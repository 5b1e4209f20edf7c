//! Members come and go.
