//! Hostile insiders and outsiders.
