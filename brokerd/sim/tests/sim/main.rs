//! Whole clusters in the simulator: one test program, so that it is linked once.

mod pairs;
mod resume;
