//! Sizes and times of this program (G7). Those of the protocol lie in [`sealcast_wire::limits`].

use std::time::Duration;

pub use sealcast_wire::limits::DIRECTORY_LOG_BYTES;

/// Bytes of a group's log that may be asked for to be kept.
pub const KEEP_MIN: u64 = 16 << 20;
/// The most.
pub const KEEP_MAX: u64 = 1_000_000_000_000;
/// Connections of all clients of the directory.
pub const CONNECTIONS_MAX: usize = 1024;
/// Connections from one address; loopback addresses have none, since a reverse proxy comes from there.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 256;
/// Connections that ask for figures.
pub const METRICS_CONNECTIONS_MAX: usize = 16;
/// How long a TLS handshake may take.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take for the headers of its next request.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a client may take for the body of a request: 8 MiB at 1 Mbit/s.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(70);
/// How long a request may take in all, from its headers to the last byte of its response.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(150);
/// How long one connection is kept open for further requests.
pub const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
/// How often a connection's times are looked at.
pub const CONNECTION_TICK: Duration = Duration::from_secs(5);
/// Bytes of a request's headers, and of what hyper buffers of a connection.
pub const HEADER_BYTES_MAX: usize = 32 << 10;
/// Headers of a request.
pub const HEADERS_MAX: usize = 64;
/// How long it waits after it could not accept a connection, out of descriptors for example.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Bytes of a request that need no leave: requests of many slow clients must not keep out the small ones of others.
pub const REQUEST_BYTES_FREE: usize = 64 << 10;
/// Bytes of all requests beyond those, while they arrive and wait.
pub const REQUESTS_BYTES_MAX: usize = 64 << 20;
/// Bytes of all responses that clients have not taken yet. The last one may go beyond.
pub const RESPONSES_BYTES_MAX: usize = 64 << 20;
/// Requests that wait for the writer.
pub const WAITING_MAX: usize = 256;
/// Requests that one commit serves.
pub const BATCH_REQUESTS_MAX: usize = 64;
/// Bytes of requests and responses after which a batch takes no further request.
pub const BATCH_BYTES_MAX: usize = 8 << 20;
/// A writer that is busy with one batch for longer is not well.
pub const BATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// How often rows are looked for whose time is over.
pub const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// The same while there are some: requests come between.
pub const SWEEP_AGAIN: Duration = Duration::from_millis(20);

/// Bytes of rows that are kept in memory for reads.
pub const CACHE_BYTES: u64 = 32 << 20;
/// Bytes of new rows in memory before they are sorted into a file: a start reads as many from the journal.
pub const UNSORTED_BYTES: u64 = 16 << 20;
/// Files of rows that are open.
pub const FILES_OPEN: usize = 64;

/// Bytes of an announcement; a longer one goes without its entry, which members then read.
pub const ANNOUNCEMENT_BYTES_MAX: usize = 60_000;
/// Announcements that wait for the MQTT broker. The oldest is dropped for a new one: the newest says how far the log goes.
pub const ANNOUNCEMENTS_MAX: usize = 4096;
/// Bytes of them.
pub const ANNOUNCEMENTS_BYTES_MAX: usize = 16 << 20;
/// Announcements that the broker has not acknowledged yet.
pub const IN_FLIGHT_MAX: usize = 32;
/// Connections in a row that may end with the same announcement before it is dropped: the broker does not take it.
pub const ATTEMPTS_MAX: u32 = 3;
/// How long it waits before it connects to the MQTT broker again, at first and at most.
pub const RECONNECT_AFTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// How long a connection to the MQTT broker may take, in seconds.
pub const MQTT_CONNECT_SECONDS: u64 = 5;
/// How often it shows the MQTT broker that it is there.
pub const MQTT_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Bytes of an MQTT packet that the relay's own broker takes: a message of 1 MiB, and what is around it.
pub const MQTT_PACKET_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Messages that it has sent to a member and that the member has not acknowledged.
pub const BROKER_IN_FLIGHT_MAX: usize = 1000;
/// Bytes that it keeps for a member that is slow or away; later ones are lost to that member, which reads the log.
pub const BROKER_QUEUED_BYTES_MAX: usize = 16 << 20;
/// Connections that it takes.
pub const BROKER_CONNECTIONS_MAX: usize = 16 << 10;
/// Bytes of memory that it takes: beyond them it takes no messages.
pub const BROKER_MEMORY_MAX: usize = 1 << 30;
/// How often it writes what it keeps.
pub const BROKER_SAVE_EVERY: Duration = Duration::from_secs(300);
/// How long it may take to start.
pub const BROKER_START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to end before it is killed.
pub const BROKER_CLOSE_TIMEOUT: Duration = Duration::from_millis(1500);
/// How often is looked whether it has started or ended.
pub const BROKER_TICK: Duration = Duration::from_millis(5);
/// Bytes of the path of a Unix socket.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Bytes of the prefix of MQTT topics.
pub const PREFIX_BYTES_MAX: usize = 64;

/// How long requests under way may take when the program is asked to end.
pub const CLOSE_TIMEOUT: Duration = Duration::from_millis(800);
/// How long announcements may take then.
pub const ANNOUNCE_TIMEOUT: Duration = Duration::from_millis(400);
