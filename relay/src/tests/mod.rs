//! Of the crate as a whole: what one client, many clients and hostile directories make of each other.

mod byzantine;
mod crashes;
mod form;
mod log;
mod stored;
