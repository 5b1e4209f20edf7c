//! Who may read and write.
