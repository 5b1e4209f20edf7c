//! Every queue, window and group size has its one named limit here (G7; invariant 5).

use std::time::Duration;

/// Members of one contributory or plain group; beyond it MLS is the right scheme (research: Dutta–Barua (8)).
pub const MEMBERS_MAX: usize = 64;
/// Of a group in which each member hears from each other one that it is alive.
pub const DIRECT_MEMBERS_MAX: usize = 8;
/// Of a group whose members show each other MACs, not signatures, what they say of the order (A3). All have verification keys.
pub const MAC_VECTOR_MEMBERS_MAX: usize = 64;
/// Other runs' keys with which a run's key remembers the secret that they agree on.
pub const AGREED_KEYS_MAX: usize = 2 * MAC_VECTOR_MEMBERS_MAX;
/// Members of a group whose keys come from a centre.
pub const CENTER_MEMBERS_MAX: usize = 1024;
/// The same where it has a reliable channel: the end of a view of more may take longer than members follow a change
/// ([`flush_within`]).
pub const ORDERED_MEMBERS_MAX: usize = 256;
/// Greatest number of a first epoch, which those who agree on it cannot prove: so far a claim brings a new group.
pub const FIRST_COUNTER_MAX: u32 = 1 << 16;
/// Topic compartments of one group, the group's own key not counted.
pub const COMPARTMENTS_MAX: usize = 16;
/// Bytes of a topic name; LCM's channels have at most 63.
pub const TOPIC_BYTES_MAX: usize = 255;
/// Bytes of one message: LCM's fragment count (65,535) times its Linux fragment size would be 4 GB;
/// this is what we take into memory for one message.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Bytes of a group's name.
pub const GROUP_BYTES_MAX: usize = 64;
/// Bytes of a member's or an authority's name (X.520's bound of a common name).
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of each part of an attribute: issuer, key, value.
pub const ATTRIBUTE_BYTES_MAX: usize = 64;
/// Bytes of the reason that an eviction gives.
pub const REASON_BYTES_MAX: usize = 200;
/// Patterns of one compartment of a policy.
pub const COMPARTMENT_PATTERNS_MAX: usize = 16;
/// Bytes of a principal's registration with a key distribution centre: one that asks to be let in fits one packet with it.
pub const REGISTRATION_BYTES_MAX: usize = 1024;
/// Rights in a registration.
pub const REGISTRATION_RIGHTS_MAX: usize = 64;
/// Bytes of the longest question to a key distribution centre, and of the longest answer.
pub const KDC_QUERY_BYTES_MAX: usize = 512;
/// Revocations in one of its answers, which is no longer than the question.
pub const KDC_NEWS_MAX: usize = 10;
/// How often a leader, and a member that stands by, asks the centre who is revoked; a stand-by centre asks the first one as often
/// what is new (C1).
pub const KDC_NEWS_EVERY: Duration = Duration::from_secs(1);
/// Topics of which a member keeps a state, by `Session::replicate`.
pub const STATES_MAX: usize = 64;
/// Bytes of a state that is handed over.
pub const STATE_BYTES_MAX: usize = 16 << 20;
/// States that a member holds for others to fetch.
pub const STATES_GIVEN_MAX: usize = 4;
/// Bytes of ordered messages that wait for a state; beyond it, a later one is asked for.
pub const STATE_PENDING_BYTES_MAX: usize = 16 << 20;
/// Messages for addresses outside the group that wait to be transmitted: a key scheme says them again.
pub const OUTSIDE_MAX: usize = 1024;
/// Leaders whose pair keys a member keeps: it can make them again.
pub const LEADERS_KNOWN_MAX: usize = 16;
/// Members of whom a change with a whole roster says why they go; of others, it is that they fell silent.
pub const CENTER_REASONS_MAX: usize = 253;
/// Members of an MLS group: with certificates its tree has some 20 MB.
pub const MLS_MEMBERS_MAX: usize = 16 << 10;
/// Certificates that a member of an MLS group need not verify again.
pub const MLS_PEOPLE_MAX: usize = 2 * MLS_MEMBERS_MAX;
/// Members whom one commit of an MLS group adds.
pub const MLS_ADDED_MAX: usize = 64;
/// Pieces of what is too long for one datagram that one message of an MLS group names, and that are fetched at a time.
pub const MLS_PIECES_MAX: usize = 256;
/// Pieces of one annex: 48 MiB.
pub const MLS_ANNEX_PIECES_MAX: usize = 4096;
/// Bytes of one of them.
pub const MLS_PIECE_BYTES: usize = 12 << 10;
/// Bytes of a commit or a tree that travel in a message itself.
pub const MLS_INLINE_BYTES_MAX: usize = 2 << 10;
/// Bytes of one part of what an MLS group orders and is too long for one message.
pub const MLS_PART_BYTES: usize = 12 << 10;
/// Bytes of the revocation list and the evictions in a group context.
pub const MLS_TRUST_BYTES_MAX: usize = 256 << 10;
/// Parts of one of those: the first commit of a group of [`MLS_MEMBERS_MAX`] has 1.3 MB.
pub const MLS_PARTS_MAX: usize = 128;
/// Of those, how many may be incomplete.
pub const MLS_INCOMPLETE_MAX: usize = 8;
/// Messages that a member seals as PrivateMessages in one epoch of RFC 9420: mls-rs opens none that is further ahead of what it
/// opened of a sender.
pub const MLS_SEALED_MAX: usize = 1024;
/// Bytes of its own PrivateMessages that a member keeps until they come back in the order.
pub const MLS_OWN_BYTES_MAX: usize = 16 << 20;
/// Messages of the order that a member of an MLS group keeps while it cannot judge them.
pub const MLS_LOG_MAX: usize = 1024;
/// Members of different names whose complaints about the commits of one exclude it from an MLS group: no single one can do so.
pub const MLS_COMPLAINTS: usize = 2;
/// Commits about which a member of an MLS group hears complaints: the last ones.
pub const MLS_COMMITS_KEPT_MAX: usize = 16;
/// Members about whom complaints are kept, and whom those of one group exclude.
pub const MLS_ACCUSED_MAX: usize = 32;
/// Names by which a member keeps complaints about one: more than exclude it, since those who complained may be excluded, too.
pub const MLS_ACCUSERS_MAX: usize = 4 * MLS_COMPLAINTS;
/// Bytes of complaints in a group context.
pub const MLS_COMPLAINTS_BYTES_MAX: usize = MLS_TRUST_BYTES_MAX / 4;
/// Those outside whom a member of an MLS group answers in a moment.
pub const MLS_ANSWERS_MAX: usize = 16;
/// Publications of a group at brokers whose place is remembered, for a later run.
pub const MARKS_MAX: usize = 4096;
/// Positions of a group's log at a relay that are remembered for a later run to begin at.
pub const RELAY_BEGINNINGS_MAX: usize = 64;
/// Messages of a member that wait to be appended to a log at a relay.
pub const RELAY_APPENDS_MAX: usize = 256;
/// Messages of the key scheme among them, beyond those: data must not keep out an eviction.
pub const RELAY_HANDSHAKES_MAX: usize = 64;
/// Bytes of an MQTT packet.
pub const MQTT_PACKET_BYTES_MAX: u32 = 2 << 20;
/// Messages that wait to be published at an MQTT broker.
pub const MQTT_QUEUE_MAX: usize = 1024;
/// Requests that wait for a relay's directory.
pub const DIRECTORY_QUEUE_MAX: usize = 2048;
/// Pieces that a member keeps for others where no directory is: 24 MiB.
pub const MLS_PIECES_KEPT_MAX: usize = 2048;
/// Devices whose key package a member keeps where no directory is.
pub const MLS_PACKAGES_KEPT_MAX: usize = 1024;
/// Those who ask a leader to be let in at once.
pub const APPLICANTS_MAX: usize = 2 * MEMBERS_MAX;
/// Pair keys that a leader keeps, for those who come back, too.
pub const PAIR_KEYS_MAX: usize = 2 * CENTER_MEMBERS_MAX;
/// Bytes of one member's entry of an epoch: for each compartment, and for the group, a secret or, where it only writes, a sending
/// key; and a tag.
pub const EPOCH_ENTRY_BYTES_MAX: usize = 32 * (COMPARTMENTS_MAX + 1) + 16;
/// Questions of one member to a key distribution centre that are not answered yet.
pub const KDC_QUESTIONS_MAX: usize = 128;
/// Of these, for other questions than for pair keys.
pub const KDC_QUESTIONS_RESERVED: usize = 16;
/// Bytes of a certificate, DER.
pub const CERTIFICATE_BYTES_MAX: usize = 4096;
/// Bytes of a revocation list, DER: some 30,000 entries.
pub const CRL_BYTES_MAX: usize = 1 << 20;
/// Bytes of a signed statement: two certificates and what it says; fits one open message.
pub const STATEMENT_BYTES_MAX: usize = 12 << 10;
/// Bytes of an invitation: certificates, revocation list and policy.
pub const INVITE_BYTES_MAX: usize = 2 << 20;
/// Bytes of the URL that an invitation names.
pub const URL_BYTES_MAX: usize = 2048;
/// Bytes of one open (bootstrap) message.
pub const OPEN_BYTES_MAX: usize = 16 << 10;
/// Packets that the replay window of one sender, epoch and domain remembers.
pub const REPLAY_WINDOW_PACKETS: usize = 4096;
/// Bytes of incomplete messages held per sender: one message of the largest size with its overhead.
pub const REASSEMBLY_BYTES_PER_SENDER_MAX: usize = 80 << 20;
/// Bytes of incomplete messages held in all.
pub const REASSEMBLY_BYTES_MAX: usize = 256 << 20;
/// Incomplete messages held per sender.
pub const REASSEMBLY_MESSAGES_PER_SENDER_MAX: usize = 64;
/// Incomplete messages held in all; on a plain way senders cost an attacker nothing.
pub const REASSEMBLY_MESSAGES_MAX: usize = 1024;
/// How long an incomplete message waits for its next fragment.
pub const REASSEMBLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Messages that a publisher may have queued while the key changes (A5).
pub const PAUSED_MESSAGES_MAX: usize = 65_536;
/// Bytes that a publisher may have queued while the key changes (A5).
pub const PAUSED_BYTES_MAX: usize = 64 << 20;
/// Datagrams held for an epoch whose key is being agreed, or whose sender must vouch (A5).
pub const EARLY_DATAGRAMS_MAX: usize = 4096;
/// Bytes of datagrams so held.
pub const EARLY_BYTES_MAX: usize = 16 << 20;
/// Records of an ordered group that wait for what comes of a change; half as many or half of their bytes make the order wait
/// instead, and who gets more all the same leaves.
pub const ORDERED_RECORDS_MAX: usize = 65_536;
/// Bytes of them.
pub const ORDERED_BYTES_MAX: usize = 64 << 20;
/// How many of its last packets a sender vouches for after a change that excludes somebody (A5).
pub const VOUCHED_PACKETS: usize = 512;
/// Members that say of an epoch that they seal for it.
pub const HERE_MEMBERS_MAX: u32 = 64;
/// The same in a group of more members.
pub const HERE_OF_MANY: u32 = 4;
/// Bytes of sent packets that a sender keeps so that it can vouch for them (A5).
pub const VOUCHED_BYTES_MAX: usize = 2 << 20;
/// Bytes that wait in a sender to be transmitted; a message more than that makes `Full`.
pub const SENDING_BYTES_MAX: usize = 8 << 20;
/// Bytes of reliable records that not all readers have acknowledged; more makes `Full`.
pub const RELIABLE_BACKLOG_BYTES: usize = 16 << 20;
/// The same before the network has shown that it takes more.
pub const RELIABLE_WINDOW_BYTES: usize = 512 << 10;
/// The same on a network that carries next to nothing: four datagrams.
pub const RELIABLE_WINDOW_BYTES_MIN: usize = 6 << 10;
/// The least that a user may set (`backlog=`).
pub const RELIABLE_BACKLOG_BYTES_MIN: usize = 64 << 10;
/// The most: what members keep of an order, and hold of a stream behind a gap, covers it.
pub const RELIABLE_BACKLOG_BYTES_MAX: usize = 64 << 20;
/// Bytes a second of best effort that are sent beside reliable records, however full the network is.
pub const PACE_MIN: u64 = 64 << 10;
/// By so many bytes a second they grow each 10 ms in which nothing was lost, and by a 512th.
pub const PACE_STEP: u64 = 8 << 10;
/// How long all wait for a member that takes nothing of what they send reliably (`slow=wait`).
pub const RELIABLE_STALLED: Duration = Duration::from_secs(60);
/// How long a member that was left out as slow is not let in again.
pub const SLOW_OUT: Duration = Duration::from_secs(30);
/// Runs of reliable messages of ours that are remembered as such of which others may lack some.
pub const DOUBTFUL_MAX: usize = 1024;
/// Members who repair what a sender does not, one after another; later ones do together.
pub const REPAIR_TURNS_MAX: usize = 8;
/// Records of one stream that came ahead of a missing one.
pub const RELIABLE_AHEAD_MAX: u64 = 1 << 16;
/// Bytes of all records that came ahead of missing ones.
pub const RELIABLE_HELD_BYTES_MAX: usize = 128 << 20;
/// Bytes of ordered records that not all members of a view hold, as they were sealed.
pub const ORDERED_KEPT_BYTES_MAX: usize = 64 << 20;
/// Bytes of ordered records that we cannot open and no stamp has named yet: they may be anybody's.
pub const ORDERED_UNREAD_BYTES_MAX: usize = 1 << 20;
/// A record may say what others are that came at most so many before it.
pub const NAMED_BEHIND_MAX: u64 = 1 << 10;
/// Stamps that wait for their records, or for others to hold theirs.
pub const STAMPS_AHEAD_MAX: usize = 2 * RELIABLE_AHEAD_MAX as usize;
/// Primary views that a member may have been in more than we know of.
pub const ORDINALS_AHEAD_MAX: u64 = 1 << 20;
/// So much more of an order than we do another member of its view may say that it holds.
pub const HELD_AHEAD_MAX: u64 = 1 << 24;
/// So much of an order that is not ours a member may say that it holds: there is always much after it. Who is in none yet
/// believes twice that.
pub const HELD_MAX: u64 = 1 << 50;
/// Sequence numbers of an order: with the number of a message in its record, which has 13 bits, each fits 64.
pub const SEQUENCE_MAX: u64 = 2 * HELD_MAX - 1;
/// Bytes of a report: it fits the shortest segment, signed, beside a bit for each of 1,024 members.
pub const REPORT_BYTES_MAX: usize = 767;
/// Ranges of missing records that one NAK names.
pub const NAK_RANGES_MAX: usize = 32;
/// Ranges that are asked for at once: as many as four NAKs name.
pub const NAKED_RANGES_MAX: usize = 4 * NAK_RANGES_MAX;
/// Times at which a stream's gaps are asked for; more gaps fall into the last one.
pub const NAK_WAVES_MAX: usize = 64;
/// NAKs of others that are remembered.
pub const NAKS_HEARD_MAX: usize = 32;
/// Bytes of buffers of ordered records that are kept to be used again.
pub const SPARE_BYTES_MAX: usize = 1 << 20;
/// Parities of a block of 64 records.
pub const PARITIES_MAX: usize = 32;
/// Blocks of a stream whose records and parities are kept, to rebuild what is lost.
pub const PARITY_BLOCKS_HELD: usize = 4;
/// Bytes of those, of all streams.
pub const PARITY_BYTES_MAX: usize = 16 << 20;
/// Records sent again for one NAK.
pub const REPAIRS_MAX: usize = 256;
/// Streams that one message about reliable records names: it fits the shortest segment.
pub const STREAMS_TOLD_MAX: usize = 56;
/// Message numbers of one signing sender that a receiver remembers, against an insider who seals
/// signed records again (A12).
pub const SIGNED_NUMBERS_WINDOW: usize = 16_384;
/// Verified roots of origin batches that a receiver remembers (A12).
pub const ORIGIN_ROOTS_MAX: usize = 1024;
/// Trees of origin batches of which a receiver remembers the nodes, each of up to two hashes for each record.
pub const ORIGIN_TREES_MAX: usize = 64;
/// Origin proofs of one slot that fail before the rest of its unknown batches in that second are dropped
/// unchecked (G8): a check takes some 30 µs, and every insider can seal false proofs in anybody's name.
pub const FALSE_PROOFS_PER_SECOND: u32 = 500;
/// Topic names that a receiver keeps interned.
pub const TOPICS_INTERNED_MAX: usize = 1024;
/// How long both epochs are accepted after a join or a timed rekey (A5).
pub const EPOCH_OVERLAP: Duration = Duration::from_secs(2);
/// Epochs whose keys are held at once (A5): the current one, those in overlap, and those that we passed over. A hundred changes
/// a second, each for [`EPOCH_OVERLAP`], are 200.
pub const EPOCHS_OVERLAPPED: usize = 256;
/// Epochs that are under way, or over, of which something else is kept. One member that comes and goes as fast as it can makes
/// some thirty in a second.
pub const EPOCHS_HELD: usize = 16;
/// How long the end of a view may take, before a key scheme goes on without it: each of `members` hears what all say.
pub const fn flush_within(members: usize) -> Duration {
    let (least, of_all) = (100, 10 * members as u64);
    Duration::from_millis(if of_all > least { of_all } else { least })
}
/// Signature checks of unregistered clients per second; known certificates are not counted (G1).
pub const UNKNOWN_CERTIFICATE_CHECKS_PER_SECOND: u32 = 200;
/// Eviction statements of one group: half of them by members, half by the authority.
pub const EVICTIONS_MAX: usize = 1024;
/// Eviction statements of one member among those: as many as a group has members to evict.
pub const EVICTIONS_BY_MEMBER_MAX: usize = 128;
/// Default capacity of a subscriber's queue, messages.
pub const SUBSCRIBER_MESSAGES: usize = 4096;
/// Records in one Merkle batch of origin signatures (A12).
pub const ORIGIN_BATCH_MAX: usize = 64;
/// How long a signed message of a stream waits at most for others to be signed with it (A12); a lone one, or
/// an answer, is signed at once.
pub const SIGNING_GATHER: Duration = Duration::from_micros(150);
/// Bytes handed to the kernel in one segmented send.
pub const TRAIN_BYTES_MAX: usize = 65_000;
/// Segments in one segmented send (Linux `UDP_MAX_SEGMENTS`).
pub const TRAIN_SEGMENTS_MAX: usize = 64;

/// Default time of silence after which a member is suspected.
pub const DETECT: Duration = Duration::from_secs(3);
/// The same where a channel is ordered: nothing is delivered there until the silent are left out (B9).
pub const DETECT_ORDERED: Duration = Duration::from_millis(500);
/// The shortest `detect=`: an agreement takes a few tens of milliseconds, and whoever is in one must not be suspected.
pub const DETECT_MIN: Duration = Duration::from_millis(50);
/// The shortest `rekey=`: faster than this a group would do little else than agree on keys.
pub const REKEY_MIN: Duration = Duration::from_millis(100);
/// Proposals wanted at once.
pub const WANTED_PROPOSALS_MAX: usize = 4;
/// Statements said again at once.
pub const STATEMENTS_SENT_MAX: usize = 8;
/// Cards wanted at once.
pub const WANTED_CARDS_MAX: usize = 128;
/// Runs of one certificate that may want in at once: the newest counts, and may be an old one's JOIN sent again.
pub const RUNS_PER_CERTIFICATE_MAX: usize = 4;
/// Times that one certificate's holder is let into a group at once, whatever its runs: programs that publish once and end.
pub const JOINS_AT_ONCE: u32 = 16;
/// And then once in so much time: each time all members agree on a key, and on another one when it leaves.
pub const JOIN_EVERY: Duration = Duration::from_millis(500);
/// Times that one certificate's holder makes the others replace a key at once, since it says that it lacks it.
pub const REKEYS_AT_ONCE: u32 = 8;
/// And then once in so much time.
pub const REKEY_EVERY: Duration = Duration::from_secs(5);
/// Messages kept until they can be verified: two attempts of a full group.
pub const EARLY_MESSAGES_MAX: usize = 384;
/// Instances remembered as judged.
pub const JUDGED_INSTANCES_MAX: usize = 256;
/// Bytes that a later version of the wire may add to a JOIN or BEACON.
pub const ADDED_BYTES_MAX: usize = 1 << 10;
/// Former epochs remembered.
pub const FORMER_EPOCHS_MAX: usize = 16;
/// People remembered as wanting, removed or struck.
pub const REMEMBERED_PEOPLE_MAX: usize = 256;
/// Registrations of which a member of such a group hears for the first time, by a JOIN or BEACON that proves nothing, in a second: a
/// full group's.
pub const UNKNOWN_REGISTRATIONS_PER_SECOND: u32 = CENTER_MEMBERS_MAX as u32;
/// Registrations that its leader gives to one address that asks for them, in one interval.
pub const GIVEN_TO_ONE_MAX: usize = 64;
/// Registrations remembered in a group whose keys come from a centre.
pub const CENTER_PEOPLE_MAX: usize = 2 * CENTER_MEMBERS_MAX;
/// People remembered: a full group, its joiners and its former members, several times over.
pub const KNOWN_PEOPLE_MAX: usize = 4 * MEMBERS_MAX;
/// Bytes of datagrams kept: at 1,000 messages of 1 KB a second, one second of them.
pub const RECENT_BYTES_MAX: usize = 1 << 20;
/// Topics whose route is remembered per epoch; beyond them the certificates are asked again.
pub const ROUTES_MAX: usize = 4096;
/// Proved misbehaviours remembered.
pub const MISBEHAVED_MAX: usize = 64;
/// Verdicts remembered per epoch; beyond them the certificates are asked again.
pub const VERDICTS_MAX: usize = 8192;
/// Topics of our own that are remembered.
pub const OWN_TOPICS_MAX: usize = 1024;
/// Datagrams that wait for a session; more are lost, as on a network.
pub const MEMORY_INBOX_DATAGRAMS_MAX: usize = 16_384;
/// Events kept for a reader; the oldest give way.
pub const VIEW_EVENTS_MAX: usize = 1024;
/// Lines of the log that are kept.
pub const LOG_ENTRIES_MAX: usize = 1000;
/// Clients served at once; more are turned away.
pub const CONTROL_CLIENTS_MAX: usize = 32;

const _: () = assert!(STATEMENT_BYTES_MAX + 2048 <= OPEN_BYTES_MAX);
const _: () =
    assert!(MLS_ANNEX_PIECES_MAX * 32 <= MLS_PIECES_MAX * MLS_PIECE_BYTES && MLS_PIECE_BYTES.is_multiple_of(32));
const _: () = assert!(MLS_PIECE_BYTES + 1024 <= OPEN_BYTES_MAX && MLS_PART_BYTES + 1024 <= OPEN_BYTES_MAX);
/// Bytes of one datagram of the in-process ways: what UDP over IPv4 carries, less an orderer's frame.
pub const MEMORY_DATAGRAM_BYTES_MAX: usize = 65_400;
/// Messages that an in-process orderer gives a place to.
pub const ORDERED_MESSAGES_MAX: usize = 1 << 20;
/// Ordered messages that came ahead of a missing one, held per client.
pub const ORDERED_AHEAD_MAX: usize = 4096;
/// Submitted messages without an outcome, per client of an in-process orderer: what a publisher has in flight.
pub const SUBMITTED_MAX: usize = 8192;
/// Unanswered fetches, per client.
pub const ORDERED_PENDING_MAX: usize = 1024;
/// Bytes of one thing kept for those who fetch it.
pub const OFFER_BYTES_MAX: usize = 60_000;
/// Things kept for those who fetch them.
pub const OFFERS_MAX: usize = 65_536;
/// Holders of shares of one threshold key: 3f + 1 brokers up to f = 33.
pub const SHAREHOLDERS_MAX: usize = 100;
/// Bytes of the id of a system that has a threshold key.
pub const SYSTEM_BYTES_MAX: usize = 64;
/// Sets of holders whose Lagrange coefficients a reader keeps.
pub const COEFFICIENTS_HELD: usize = 64;
/// Headers, and rules of access, of one label.
pub const LABEL_PARTS_MAX: usize = 64;
/// Bytes of one encoded label.
pub const LABEL_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(REASSEMBLY_BYTES_PER_SENDER_MAX > MESSAGE_BYTES_MAX);
const _: () = assert!(VOUCHED_PACKETS <= REPLAY_WINDOW_PACKETS);
const _: () = assert!(ORIGIN_BATCH_MAX.is_power_of_two());

/// Bytes of an access expression or a subscription, as text.
pub const EXPRESSION_TEXT_BYTES_MAX: usize = 8 << 10;
/// Bytes of an access expression or a subscription, as labels and operations carry it.
pub const EXPRESSION_BYTES_MAX: usize = 8 << 10;
/// Comparisons and connectives of one expression: every reader of a publication is judged by it.
pub const EXPRESSION_NODES_MAX: usize = 256;
/// How deep an expression's parts may lie within each other; bounds recursion on hostile input.
pub const EXPRESSION_DEPTH_MAX: usize = 16;
/// Values of one list, as in `role in [nurse, doctor]`.
pub const EXPRESSION_LIST_MAX: usize = 64;
/// Operations of one batch: what one signature of a client vouches for.
pub const BATCH_OPERATIONS_MAX: usize = 256;
/// Accusations of one batch (E4): each costs every broker the proofs of t shares.
pub const BATCH_ACCUSATIONS_MAX: usize = 4;
/// Accusations of one block: more of them make it invalid, so that a leader cannot occupy all others with false ones.
pub const BLOCK_ACCUSATIONS_MAX: usize = 16;
/// Registrations and acts of administrators of one batch: each costs every broker signatures when it is executed.
pub const BATCH_PROOFS_MAX: usize = 4;
/// The same of one block: more of them make it invalid, so that nobody occupies the thread that executes with false ones.
pub const BLOCK_PROOFS_MAX: usize = 128;
/// Accusations that wait at a client to be brought; it brings one at a time.
pub const ACCUSATIONS_WAITING_MAX: usize = 16;
/// Of so many of the last publications, the sealed ones can be accused.
pub const ACCUSABLE: u64 = 1 << 20;
/// Of those before, brokers forget so many with each block that has sealed ones.
pub const ACCUSABLE_FORGOTTEN: usize = 4096;
/// Suspended clients that a broker's status names.
pub const SUSPENDED_SHOWN: usize = 64;
/// Bytes of one batch; a block holds several.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes of one publication's body or ciphertext; larger things are published as digests.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Bytes of one operation: the body, its header and its rules.
pub const OPERATION_BYTES_MAX: usize = BODY_BYTES_MAX + (64 << 10);
/// Headers (`topic=value`) of one publication.
pub const HEADERS_MAX: usize = 16;
/// Bytes of a publication's associated data, or of an advertisement's text.
pub const ASSOCIATED_BYTES_MAX: usize = 4 << 10;
/// Bytes of a key of the brokers' key–value state.
pub const VALUE_KEY_BYTES_MAX: usize = 255;
/// Bytes of a value there.
pub const VALUE_BYTES_MAX: usize = 4 << 10;
/// Values of the brokers' key–value state and topics of publications, which nothing prunes, of all clients.
pub const KEPT_ROWS_MAX: u64 = 1 << 22;
/// Bytes of them.
pub const KEPT_BYTES_MAX: u64 = 4 << 30;
/// The same of all clients whose first credential is one.
pub const KEPT_ROWS_PER_CREDENTIAL_MAX: u64 = 1 << 16;
/// Bytes of them.
pub const KEPT_BYTES_PER_CREDENTIAL_MAX: u64 = 32 << 20;
/// Bytes of the detail of an operation's outcome: numbers at each header, and a value found.
pub const OUTCOME_DETAIL_BYTES_MAX: usize = 8 + 8 * HEADERS_MAX + 1 + VALUE_BYTES_MAX;
/// Attributes that one registration brings.
pub const CLAIMED_ATTRIBUTES_MAX: usize = 64;
/// Attributes that one client holds, over all its registrations.
pub const CLIENT_ATTRIBUTES_MAX: usize = 128;
/// Standing subscriptions of one client: they are held in memory.
pub const SUBSCRIPTIONS_PER_CLIENT_MAX: usize = 256;
/// Clients for which one credential vouches: an identity has up to 48 at each machine that it works from.
pub const CLIENTS_PER_CREDENTIAL_MAX: usize = 128;
/// Standing subscriptions of all clients for which one credential vouches.
pub const SUBSCRIPTIONS_PER_CREDENTIAL_MAX: usize = 512;
/// Bytes of them.
pub const SUBSCRIPTIONS_BYTES_PER_CREDENTIAL_MAX: usize = 256 << 10;
/// Standing subscriptions of all clients.
pub const SUBSCRIPTIONS_MAX: usize = 1 << 20;
/// Bytes of them.
pub const SUBSCRIPTIONS_BYTES_MAX: usize = 256 << 20;
/// Rules of one global policy.
pub const RULES_MAX: usize = 256;
/// Bytes of one global policy.
pub const RULES_BYTES_MAX: usize = 256 << 10;
/// Administrators of one cluster.
pub const ADMINISTRATORS_MAX: usize = 64;
/// Issuers of attributes that one cluster knows.
pub const ISSUERS_MAX: usize = 256;
/// Bytes of an encoded threshold key: n + 1 elements and its parameters.
pub const THRESHOLD_KEY_BYTES_MAX: usize = 8 << 10;
/// Bytes of a broker's word in making the threshold key: a dealing to `BROKERS_MAX` holders.
pub const DKG_BYTES_MAX: usize = 64 << 10;
/// Words of one broker that are kept: three of each run.
pub const DKG_STATEMENTS_PER_BROKER_MAX: u64 = 256;
/// Bytes of them.
pub const DKG_BYTES_PER_BROKER_MAX: u64 = 4 << 20;
/// Blocks for which a round of making the threshold key waits for silent brokers: a minute when idle, seconds under load.
pub const DKG_ROUND_BLOCKS: u64 = 400;
/// Bytes of one message between a client and a broker: an update of a block of the default size with its bodies; a
/// larger one leaves bodies out, which are then asked for one by one.
pub const PROTOCOL_MESSAGE_BYTES_MAX: usize = 8 << 20;
/// Bytes that wait for one broker at a client, or for one client at a broker; who takes less is cut off.
pub const CHANNEL_SEND_BYTES_MAX: usize = 64 << 20;
/// Bytes of bodies that one update or answer brings.
pub const UPDATE_BODIES_BYTES_MAX: usize = 4 << 20;
/// Bytes of a block's batches up to which every broker sends its contents to those whom it concerns, and not its speaker
/// alone: when little is under way, nobody waits for one certain broker.
pub const UPDATE_BY_ALL_BYTES: usize = 16 << 10;
/// Clients whose next numbers a broker knows without its store; with more of them all are looked up anew.
pub const NUMBERS_KNOWN_CLIENTS: usize = 16_384;
/// Clients of which a broker knows without its store that they never registered; with more of them all are looked up anew.
pub const NUMBERS_UNKNOWN_CLIENTS: usize = 4096;
/// Queries of one client that one broker has not yet answered.
pub const QUERIES_MAX: usize = 256;
/// Blocks of which a broker keeps the outbox in memory, for clients whose broker was silent and for receipts.
pub const OUTBOXES_KEPT: usize = 256;
/// Bytes of a cluster file: keys, addresses and issuers' certificates.
pub const CLUSTER_FILE_BYTES_MAX: usize = 4 << 20;
/// Bytes of a broker's address, `host:port`.
pub const ADDRESS_BYTES_MAX: usize = 262;
/// Publications, results and notices together of the outboxes so kept; fewer blocks are kept if they hold more.
pub const OUTBOXES_THINGS_KEPT: usize = 1 << 17;
/// Bytes of the batches of blocks so kept; those of older ones are fetched from the order's archive.
pub const OUTBOXES_BATCHES_BYTES_KEPT: usize = 64 << 20;
/// Bytes of older blocks that are kept once they were fetched from there: who reads history reads on in them.
pub const BLOCKS_READ_BYTES_KEPT: usize = 32 << 20;
/// Blocks executed before the store is synced and they are acknowledged: well below those that may be out.
pub const STORE_SYNC_BLOCKS: usize = 8;
/// How long an executed block waits at most for that.
pub const STORE_SYNC_AFTER: Duration = Duration::from_millis(50);
/// Blocks with batches whose results a broker remembers: at 35 full blocks a second half an hour.
pub const RESULTS_KEPT_BLOCKS: u64 = 1 << 16;
/// At heights that are multiples of this, brokers can testify to the state, and take snapshots.
pub const CHECKPOINT_BLOCKS: u64 = 64;
/// Snapshots that a broker holds between the newest and the oldest block that it keeps.
pub const SNAPSHOTS_KEPT: u64 = 8;
/// Bytes of a snapshot that one answer brings.
pub const SNAPSHOT_PART_BYTES: usize = 1 << 20;
/// Bytes of one row of a snapshot: a global policy with room to spare.
pub const SNAPSHOT_ROW_BYTES_MAX: usize = 1 << 20;
/// Time that one part of a snapshot may take.
pub const SNAPSHOT_PART_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a snapshot that must come in a second, on the whole: whoever is slower is given up for the next.
pub const SNAPSHOT_BYTES_PER_SECOND_MIN: u64 = 512 << 10;
/// Time that another broker may take from the first byte of the handshake to the last one of its answer. A broker that
/// starts waits as long for one that is silent.
pub const PEER_ANSWER: Duration = Duration::from_secs(3);
/// Bytes of replies that come unasked and are kept on a broker's own channel to another one; the newest are.
pub const CHANNEL_EARLIER_BYTES_MAX: usize = 16 << 20;

const _: () = assert!(RULES_BYTES_MAX < SNAPSHOT_ROW_BYTES_MAX);
/// Bytes of the proof that a block is final: `BROKERS_MAX` signatures, and of its header: `BLOCK_BATCHES_MAX` hashes.
pub const START_CERTIFICATE_BYTES_MAX: usize = 4 << 20;
/// Publications that are pruned at once.
pub const PRUNED_PUBLICATIONS: usize = 1024;
/// Blocks whose results are forgotten at once.
pub const RESULTS_FORGOTTEN_BLOCKS: usize = 64;
/// Publications whose shares are to be computed; execution waits with more of them.
pub const SHARES_TO_COMPUTE_MAX: usize = 4096;
/// Bytes of ciphertexts that a broker remembers as checked until their shares are computed.
pub const CIPHERTEXTS_CHECKED_BYTES: usize = 64 << 20;
/// Bytes for knowing of ciphertexts that they were checked: some 200,000.
pub const CIPHERTEXTS_SEEN_BYTES: usize = 32 << 20;
/// Bytes of shares, and as many of proofs, that a broker remembers: some 100,000 and 50,000.
pub const SHARES_HELD_BYTES: usize = 16 << 20;
/// Proofs of shares that one client is given in a second (E4): each is three multiplications, once for all clients.
pub const PROOFS_PER_SECOND: u32 = 256;
/// Proofs of shares that one client is given at once.
pub const PROOFS_AT_ONCE: u32 = 1024;
/// Clients whose asking for proofs is remembered.
pub const PROOF_CLIENTS_MAX: usize = 4096;
/// Brokers of one cluster: the paper goes to 31.
pub const BROKERS_MAX: usize = 64;

const _: () = assert!(OPERATION_BYTES_MAX < BATCH_BYTES_MAX);
const _: () = assert!(BATCH_ACCUSATIONS_MAX <= BLOCK_ACCUSATIONS_MAX);
const _: () = assert!(BATCH_PROOFS_MAX <= BLOCK_PROOFS_MAX);
const _: () = assert!(RULES_BYTES_MAX < OPERATION_BYTES_MAX);
/// Age of the newest block that f + 1 brokers show, by the client's clock, above which it seals nothing (E6). An idle
/// cluster makes a block each 150 ms; the rest is for clocks that differ.
pub const SEAL_BLOCK_AGE_MAX: Duration = Duration::from_secs(60);
/// Operations of one client that are not yet executed, as far as it knows.
pub const CLIENT_OPERATIONS_MAX: usize = 65_536;
/// Bytes of them.
pub const CLIENT_OPERATIONS_BYTES_MAX: usize = 64 << 20;
/// Bytes of a client's batches under way: half a second of 40,000 operations of 1 KB.
pub const CLIENT_BATCHES_BYTES_MAX: usize = 20 << 20;
/// Batches of a client under way.
pub const CLIENT_BATCHES_MAX: usize = 4096;
/// Bytes of a batch that gathers operations; a larger operation goes alone.
pub const CLIENT_BATCH_BYTES: usize = 256 << 10;
/// Blocks that a client holds until it may believe them, or until what comes before is there.
pub const CLIENT_HEIGHTS_MAX: usize = 1024;
/// Of these, blocks that only one broker has named.
pub const CLIENT_HEIGHTS_PER_BROKER_MAX: usize = 256;
/// Bytes of the publications in these blocks; what has no more room is asked for when its turn comes.
pub const CLIENT_BODIES_BYTES_MAX: usize = 64 << 20;
/// Bytes of publications that wait at a client for those before them to be opened, and as many for one reader; no more
/// are handed on meanwhile.
pub const CLIENT_WAITING_BYTES_MAX: usize = 32 << 20;
/// Advertisements that wait at a client until its program takes them; older ones make room.
pub const CLIENT_ADVERTISEMENTS_MAX: usize = 256;
/// Queries of a client that are open at once, those for shares not counted,
pub const CLIENT_QUERIES_MAX: usize = 128;
/// and those for shares.
pub const CLIENT_SHARES_MAX: usize = 128;

const _: () = assert!(CLIENT_QUERIES_MAX + CLIENT_SHARES_MAX <= QUERIES_MAX && CLIENT_BATCH_BYTES <= BLOCK_BYTES);
/// Rows that a broker reads from its store in one call.
pub const STORE_PAGE_ROWS: usize = 1024;
/// Places that one read of a topic's range answers.
pub const READ_POSITIONS_MAX: usize = 1024;
/// Publications that one resumption of a subscription looks at.
pub const RESUME_ENTRIES_MAX: usize = 4096;
/// Those of them that it looks at in one step, during which no block is executed.
pub const RESUME_STEP_ENTRIES: usize = 128;
/// Bytes of entries in one answer, but for its last one: the client then asks on.
pub const ANSWER_ENTRIES_BYTES: usize = 4 << 20;

/// Brokers of a cluster, at least: 3f+1 for one that lies.
pub const BROKERS_MIN: usize = 4;
/// Default batches of one block: as many operations of 1 KB as `BLOCK_BYTES` holds.
pub const BLOCK_BATCHES: usize = 2000;
/// Default bytes of one block's batches: each block costs a broker up to 6 ms of processor time whatever it holds, and with
/// half of this a fourth of the throughput is lost; with twice as much nothing more is gained.
pub const BLOCK_BYTES: usize = 2 << 20;
/// Batches of one block, at most: every broker takes so many, whatever its own setting.
pub const BLOCK_BATCHES_MAX: usize = 65_536;
/// Bytes of one block's batches, at most: every broker takes so many, whatever its own setting. A leader sends that to three
/// others within its 300 ms at 1 Gb/s; and some blocks of each broker that lies are in every other one's memory.
pub const BLOCK_BYTES_MAX: usize = 8 << 20;
/// Silence of a leading broker after which its term is given up, at most (E14 asks for 300 ms; slow links for more).
pub const LEADER_TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// Batches that wait to be ordered at one broker.
pub const ORDER_POOL_BATCHES_MAX: usize = 1 << 18;
/// Bytes of batches that wait to be ordered at one broker.
pub const ORDER_POOL_BYTES_MAX: usize = 128 << 20;
/// Ordered batches whose hashes a pool remembers, against copies that come late.
pub const ORDERED_BATCHES_KNOWN: usize = 65_536;
/// Batches between `submit` and the link to the leader.
pub const SUBMITTED_BATCHES: usize = 4096;
/// Proofs of misbehaviour that an engine keeps in memory.
pub const EVIDENCE_MAX: usize = 256;
/// Votes to notarize a block that an engine remembers, to compare them with certificates: 64 views of all brokers.
pub const NOTARIZE_VOTES_REMEMBERED: usize = 64 * BROKERS_MAX;
/// Bytes of one of them that a broker keeps: two votes.
pub const EVIDENCE_BYTES_MAX: usize = 4096;

/// Bytes of one file of a broker's log, after which the next is begun: what pruning removes at once.
pub const LOG_FILE_BYTES: u64 = 128 << 20;
/// Records of one file of the log: their heights are in memory while it is written, and read again at a start.
pub const LOG_FILE_RECORDS: usize = 1 << 16;
/// Bytes of one record of the log without its head: a block with the lengths of its batches, or a certificate.
pub const LOG_BODY_BYTES_MAX: usize = BLOCK_BYTES_MAX + 4 * BLOCK_BATCHES_MAX + 64;
/// Closed files of the log that are held open for reading.
pub const LOG_FILES_OPEN: usize = 8;
/// Sorted runs of digests of similar size that become one.
pub const LOG_RUNS_ALIKE: usize = 4;
/// Runs of digests, each with an open file: with so many, closing a file of the log waits until some have become one.
pub const LOG_RUNS_MAX: usize = 32;
/// Ranges of heights with certificates that are remembered; older ones are looked up on disk.
pub const LOG_CERTIFICATE_RANGES: usize = 65_536;
const _: () = assert!(LOG_BODY_BYTES_MAX < u32::MAX as usize);
const _: () = assert!(BLOCK_BYTES <= BLOCK_BYTES_MAX && BLOCK_BATCHES <= BLOCK_BATCHES_MAX);
const _: () = assert!(BATCH_BYTES_MAX <= BLOCK_BYTES_MAX);
/// Payloads in one ciphertext: publications of one policy that are sealed together.
pub const SEALED_TOGETHER_MAX: usize = 256;
/// Ciphertexts that wait for shares; as many as the join holds back.
pub const SEALED_WAITING_MAX: usize = EARLY_DATAGRAMS_MAX;
/// Bytes of them.
pub const SEALED_WAITING_BYTES_MAX: usize = 64 << 20;
/// Shares of one broker that are kept until their ciphertexts come.
pub const EARLY_SHARES_PER_BROKER: usize = 1024;
/// Doublings of the time after which brokers are asked for shares again.
pub const SHARES_ASKED_DOUBLINGS_MAX: u32 = 6;

const _: () = assert!(SEALED_WAITING_BYTES_MAX > BODY_BYTES_MAX);
/// Channels of registered clients to one broker's gateway.
pub const GATEWAY_REGISTERED_MAX: usize = 3072;
/// Connections of unregistered clients to it, those still in their handshake among them: with one more, the oldest of them ends.
pub const GATEWAY_UNREGISTERED_MAX: usize = 1024;
/// Connections that have lost their place and are not closed yet; with more of them new ones are closed at once.
pub const GATEWAY_CLOSING_MAX: usize = 16;
/// Client connections for which there must be file descriptors, or the broker does not start.
pub const GATEWAY_CONNECTIONS_MIN: usize = 16;
/// File descriptors that the order holds open: one for each view whose votes are remembered (64), some 16 of upstream's caches,
/// and those of the log: `LOG_FILES_OPEN`, the active file, and runs of digests.
pub const ORDER_DESCRIPTORS: usize = 112;
/// Files of rows that the store keeps open.
pub const STORE_FILES_OPEN: usize = 32;
/// File descriptors for each other broker: the order's link and one that is being dialled, a channel in each direction.
pub const BROKER_DESCRIPTORS: usize = 4;
/// File descriptors for all else that a broker opens: standard streams, listeners, its threads' wake-ups, the store's
/// journals and compactions, key files, snapshots, figures, handshakes at the order's port.
pub const RESERVED_DESCRIPTORS: usize = 48;
/// Connections at the order's port that have not shown yet that they are a broker's; with more of them new ones are closed at
/// once. Each of them holds a descriptor for up to 5 s, and whoever opens them is nobody whom the broker knows.
pub const ORDER_HANDSHAKES_MAX: u32 = 16;
/// Time from a client's connecting to its hello.
pub const GATEWAY_HANDSHAKE: Duration = Duration::from_secs(10);
/// Time that a message of a client may take from its first byte to its last: the longest at 140 KB/s.
pub const GATEWAY_MESSAGE: Duration = Duration::from_secs(30);
/// Time that a client may take nothing of what waits for it.
pub const GATEWAY_WRITE: Duration = Duration::from_secs(30);
/// Bytes of a message of a client: a batch and its kind.
pub const GATEWAY_REQUEST_BYTES_MAX: usize = BATCH_BYTES_MAX + 1;
/// Bytes of a client's first message.
pub const GATEWAY_HELLO_BYTES_MAX: usize = 1 << 10;
/// Bytes of a message of a client that is not registered: an administrators' policy with room to spare.
pub const GATEWAY_UNREGISTERED_REQUEST_BYTES_MAX: usize = 2 << 20;
/// Bytes that wait for one client: a second of 1 KB publications at full speed. Beyond them its channel is closed; it
/// resumes later.
pub const GATEWAY_OUTGOING_BYTES_MAX: usize = 32 << 20;
/// Bytes that wait for all clients; beyond them, whoever has more than the mean waiting loses its channel.
pub const GATEWAY_OUTGOING_ALL_BYTES_MAX: usize = 512 << 20;
/// Bytes of long messages that are being read from all registered clients.
pub const GATEWAY_READING_BYTES_MAX: usize = 256 << 20;
/// The same of all clients for which one credential vouches.
pub const GATEWAY_READING_HOLDER_BYTES_MAX: usize = 32 << 20;
/// The same of all others.
pub const GATEWAY_READING_UNREGISTERED_BYTES_MAX: usize = 32 << 20;
/// Queries of all registered clients that one broker has not yet answered.
pub const QUERIES_TOTAL_MAX: usize = 16_384;
/// Queries of a client that is not registered that one broker has not yet answered.
pub const QUERIES_UNREGISTERED_MAX: usize = 16;
/// The same of all of them.
pub const QUERIES_UNREGISTERED_TOTAL_MAX: usize = 1024;
/// Queries beyond `QUERIES_UNREGISTERED_MAX` with which a client that is not registered loses its channel: more than one
/// that asks all its `CLIENT_QUERIES_MAX` at once.
pub const QUERY_STRIKES_MAX: u32 = 128;
/// Time for which a broker does not hear a client after each of them.
pub const QUERY_STRIKE_PAUSE: Duration = Duration::from_millis(10);
/// Time for which a broker does not hear an unregistered client whose query found `QUERIES_UNREGISTERED_TOTAL_MAX` open. The
/// others took them, so that it is no strike; all 1,024 connections together still get few such answers a second.
pub const QUERY_BUSY_PAUSE: Duration = Duration::from_millis(50);
/// The thread that answers clients that are not registered rests so many times as long as an answer took it: however
/// much they ask, it costs an eighth of a core.
pub const QUERIES_UNREGISTERED_REST: u32 = 7;
/// Batches whose signatures are checked in one batch; larger batches gain little.
pub const CHECKED_TOGETHER_MAX: usize = 128;
/// Bytes of them, unless one batch is longer: 64 ciphertexts of 1 KB, which take some 10 ms.
pub const CHECKED_TOGETHER_BYTES: usize = 64 << 10;
/// Bytes of them where the last batches were cheaper than that. Were all of a batch ciphertexts, it would take some 150 ms.
pub const CHECKED_TOGETHER_BYTES_MAX: usize = 1 << 20;
/// How long a batch is to take: whoever comes meanwhile waits for it.
pub const CHECKED_TOGETHER_WITHIN: Duration = Duration::from_millis(10);
/// Ciphertexts of a block that a broker proposes, unless one batch has more: the others check those that they have not
/// seen before they vote, and whoever comes meanwhile waits for that.
pub const BLOCK_CIPHERTEXTS_PROPOSED_MAX: usize = 512;
/// Bytes of proposed and final blocks that are not executed and durable, above which a broker proposes small ones: eight
/// full blocks, of which the store syncs as many at once.
pub const UNEXECUTED_BYTES_MAX: usize = 16 << 20;
/// Bytes that it proposes then: something of each account.
pub const BLOCK_BYTES_ALWAYS: usize = 64 << 10;
/// Time from a block's proposal until it is executed and durable that a broker aims at while several accounts publish:
/// what comes meanwhile waits for it. An idle cluster's takes some 60 ms, most of it for `STORE_SYNC_AFTER`.
pub const BLOCK_EXECUTED_WITHIN: Duration = Duration::from_millis(120);
/// Blocks in which one account alone must have published before it gets full blocks again: a few seconds, so that the one
/// batch of a subscriber does not keep a publisher's blocks short.
pub const ALONE_BLOCKS: u64 = 32;
/// Proposed blocks that are timed at once: more than may be proposed and not executed.
pub const PROPOSALS_TIMED: usize = 64;
/// Batches that wait to be checked or ordered, of a client that is not registered.
pub const UNREGISTERED_BATCHES_MAX: usize = 16;
/// Bytes of them: several certificates.
pub const UNREGISTERED_BYTES_MAX: usize = 1 << 20;
/// Batches of all clients that are not registered, that wait to be checked or ordered: keys are free.
pub const UNREGISTERED_BATCHES_TOTAL_MAX: usize = ORDER_POOL_BATCHES_MAX / 8;
/// Bytes of them.
pub const UNREGISTERED_BYTES_TOTAL_MAX: usize = ORDER_POOL_BYTES_MAX / 8;
/// Bytes of checked batches that wait for nothing: they stood in a block that may yet fail.
pub const STRAY_BATCHES_BYTES_MAX: usize = 64 << 20;
/// Blocks after which they are forgotten: one of the next leaders has brought them again by then.
pub const STRAY_BLOCKS_MAX: u64 = 64;
/// Clients whose registration was seen lately, and may not be executed here yet: what they send behind it is taken.
pub const INTRODUCED_CLIENTS: usize = 4096;
/// Blocks for which a batch is held back because batches before it are missing.
pub const TURN_TIMEOUT_BLOCKS: u64 = 64;
/// False batches that another broker may forward before it is no longer listened to: honest ones check them first.
pub const FALSE_FORWARDS_MAX: u32 = 16;

const _: () = assert!(QUERIES_UNREGISTERED_MAX + QUERY_STRIKES_MAX as usize > CLIENT_QUERIES_MAX);
const _: () = assert!(GATEWAY_REQUEST_BYTES_MAX <= PROTOCOL_MESSAGE_BYTES_MAX);
const _: () = assert!(2 * EVIDENCE_MAX * EVIDENCE_BYTES_MAX < PROTOCOL_MESSAGE_BYTES_MAX);
const _: () = assert!(PROTOCOL_MESSAGE_BYTES_MAX < GATEWAY_OUTGOING_BYTES_MAX);
const _: () = assert!(UNREGISTERED_BYTES_MAX < ORDER_POOL_BYTES_MAX / 2);
const _: () = assert!(RULES_BYTES_MAX < GATEWAY_UNREGISTERED_REQUEST_BYTES_MAX);
const _: () = assert!(ORDER_HANDSHAKES_MAX as usize * 2 < RESERVED_DESCRIPTORS);
const _: () = assert!(BATCH_BYTES_MAX < GATEWAY_READING_HOLDER_BYTES_MAX);
const _: () = assert!(GATEWAY_UNREGISTERED_REQUEST_BYTES_MAX <= GATEWAY_READING_UNREGISTERED_BYTES_MAX);

/// Bytes of one entry of a directory's log: a commit of a large group, with the cards of those whom it lets in.
pub const RELAY_ENTRY_BYTES_MAX: usize = 1 << 20;
/// Bytes of one blob at a directory.
pub const RELAY_BLOB_BYTES_MAX: usize = 16 << 10;
/// Blobs that one request brings or fetches: a tree of 10,000 leaves is some 160.
pub const RELAY_BLOBS_MAX: usize = 256;
/// Bytes of one mail to a device: a Welcome.
pub const RELAY_MAIL_BYTES_MAX: usize = 64 << 10;
/// Mails that one append brings, and one answer gives.
pub const RELAY_MAIL_MAX: usize = MLS_ADDED_MAX;
/// Bytes of one key package at a directory, sealed and with its card.
pub const RELAY_PACKAGE_BYTES_MAX: usize = 16 << 10;
/// Single-use key packages of one device that a directory keeps.
pub const RELAY_PACKAGES_MAX: usize = 32;
/// Bytes of one request to a directory: the longest entry, and blobs and mail of 7 MiB together.
pub const RELAY_REQUEST_BYTES_MAX: usize = 8 << 20;
/// Bytes of entries in one answer of a directory, unless the first one is longer.
pub const RELAY_READ_BYTES_MAX: usize = 4 << 20;
/// Entries in one answer of a directory.
pub const RELAY_READ_ENTRIES_MAX: usize = 1024;
/// Bytes of one answer of a directory: entries, blobs or mail of 4 MiB, and what frames them.
pub const RELAY_RESPONSE_BYTES_MAX: usize = (4 << 20) + (64 << 10);
/// Bytes of what was ordered while a process was away, and that it keeps until its application subscribes.
pub const UNSUBSCRIBED_BYTES_MAX: usize = 4 << 20;
/// Entries behind the head that an append expects which it may stand behind as well: half a second of what one key may append.
pub const RELAY_BEHIND_MAX: u64 = 128;
/// Keys of a log that sign appends, beside its joiner key.
pub const RELAY_KEYS_NAMED: usize = 64;
/// Keys that one of them may name: commits of one epoch that are void name some, too.
pub const RELAY_KEYS_OF_ONE: usize = 8;
/// Keys of its last epochs by which a member may still sign: the directory may not know the newest one yet.
pub const RELAY_KEYS_HELD: usize = 4;
/// Positions before its own that a follower of a log can compare with other members' receipts: ten minutes of one update in 10 s.
pub const RELAY_LINKS_MAX: usize = 64;
/// Links of one proof that a directory showed two histories.
pub const RELAY_EVIDENCE_LINKS_MAX: usize = RELAY_LINKS_MAX + RELAY_READ_ENTRIES_MAX;
/// Bytes that each row of a directory counts beside its content.
pub const RELAY_ROW_BYTES: u64 = 256;
/// Entries of a log that one append removes at most.
pub const RELAY_COMPACTED_ENTRIES: usize = 64;
/// Default entries of one group's log that a directory keeps.
pub const DIRECTORY_LOG_ENTRIES: u64 = 1 << 18;
/// Default bytes of them.
pub const DIRECTORY_LOG_BYTES: u64 = 256 << 20;
/// Default bytes of one group's blobs at a directory: some trees of 10,000 leaves.
pub const DIRECTORY_BLOB_BYTES: u64 = 64 << 20;
/// Default bytes of mail that waits in one group.
pub const DIRECTORY_MAIL_BYTES: u64 = 16 << 20;
/// Default bytes of one group's key packages at a directory.
pub const DIRECTORY_PACKAGE_BYTES: u64 = 256 << 20;
/// Default devices of one group that have key packages at a directory.
pub const DIRECTORY_DEVICES: u32 = 16_384;
/// Default groups of one directory.
pub const DIRECTORY_GROUPS: u64 = 1 << 16;
/// Default time for which mail waits.
pub const DIRECTORY_MAIL_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Default time after which a directory removes a group in which nothing changes: healthy groups renew keys daily.
pub const DIRECTORY_IDLE_KEPT: Duration = Duration::from_secs(180 * 86_400);
/// Default token buckets that a directory remembers: some 15 MB.
pub const DIRECTORY_BUCKETS: usize = 1 << 16;
/// Rows that one sweep of a directory looks at in one place.
pub const DIRECTORY_SWEPT_ROWS: usize = 64;

/// What one payer may ask of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// How much of the refilling time may be used at once.
    pub burst: Duration,
    /// Refilling time that a request takes.
    pub each: Duration,
    /// Bytes that take a second more.
    pub bytes_per_second: u64,
}

impl Rate {
    const fn new(burst_millis: u64, each_micros: u64, bytes_per_second: u64) -> Rate {
        Rate { burst: Duration::from_millis(burst_millis), each: Duration::from_micros(each_micros), bytes_per_second }
    }

    /// The n-th part of it.
    #[must_use]
    pub fn part_of(self, n: u32) -> Rate {
        Rate { each: self.each * n, bytes_per_second: self.bytes_per_second / u64::from(n.max(1)), ..self }
    }
}

/// New groups of all clients of a directory: each costs a verification and some rows.
pub const DIRECTORY_FOUNDINGS: Rate = Rate::new(10_000, 100_000, 8 << 20);
/// Appends of a key that the log names: a commit has up to 1 MiB, and blobs come with it. More than two such keys of a group share
/// twice as much.
pub const DIRECTORY_APPENDS: Rate = Rate::new(20_000, 5_000, 4 << 20);
/// Appends of a group's joiner key, which all share who were ever invited: of newcomers, one external commit wins an epoch.
pub const DIRECTORY_APPENDS_OF_JOINERS: Rate = Rate::new(20_000, 50_000, 4 << 20);
/// Other signed requests of a key that the log names.
pub const DIRECTORY_OTHERS: Rate = Rate::new(10_000, 20_000, 2 << 20);
/// The same of the joiner key: a thousand newcomers come within a minute.
pub const DIRECTORY_OTHERS_OF_JOINERS: Rate = Rate::new(60_000, 50_000, 1 << 20);
/// What all members of one group read: a thousand of them catch up on 64 KiB each in a second.
pub const DIRECTORY_READS: Rate = Rate::new(10_000, 500, 64 << 20);

const _: () = assert!(RELAY_BLOBS_MAX * (RELAY_BLOB_BYTES_MAX + 5) + 16 <= RELAY_RESPONSE_BYTES_MAX);
const _: () = assert!(RELAY_MAIL_MAX * (RELAY_MAIL_BYTES_MAX + 12) + 16 <= RELAY_RESPONSE_BYTES_MAX);
const _: () = assert!(RELAY_READ_BYTES_MAX + RELAY_READ_ENTRIES_MAX * 37 + 1024 <= RELAY_RESPONSE_BYTES_MAX);
const _: () = assert!(RELAY_ENTRY_BYTES_MAX <= RELAY_READ_BYTES_MAX && RELAY_EVIDENCE_LINKS_MAX <= u16::MAX as usize);
