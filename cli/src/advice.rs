//! How each kind of trouble comes about, and what to type: what `sealcast explain` says.

use sealcast::Code;

/// See the module.
pub(crate) fn advice(code: Code) -> &'static str {
    match code {
        Code::System => {
            "A file, socket or process could not be used. The message names which, with the system's own words."
        }
        Code::Closed => "It was closed by this program, or it ended after an error that was reported before.",
        Code::NoSession => {
            "Commands that speak to a running session need one: start sealcast sub 'PATTERN' with the same context or --id."
        }
        Code::Claim => "The line above says which. Please report it together with the output of 'sealcast doctor'.",
        Code::Full => {
            "Messages come faster than they leave. Publish more slowly, or let publish wait instead of try_publish."
        }
        Code::TooLarge => "One message may have 64 MiB. Send a file in parts, or a link to it.",
        Code::PolicyTest => {
            "The policy does not do what its author expected: one of the two is wrong. 'sealcast policy why' tells what decided."
        }
        Code::Ended => {
            "One broker cannot go on. The message says why; started again, it goes on where it was, and the others do not wait for it."
        }
        Code::NotKept => {
            "Brokers keep publications as long as their operator said (keep). \"sealcast read TOPIC\" begins at the oldest that is kept."
        }
        Code::Damaged => {
            "The message names the file. Move the folders order, state and snapshots of this broker away and start it again: it \
         rebuilds them from the other brokers. Keep broker.key, cluster.toml and the folder keys, which nobody can give back. \
         A cluster of one broker has no others: bring its folder back from a copy."
        }
        Code::Forked => {
            "The process was forked after it opened the session. Both copies would encrypt under the same nonces, so the child's refuses \
         everything. Open a session in the child; Python's multiprocessing needs set_start_method(\"spawn\")."
        }
        Code::Duplicate => {
            "One certificate runs once per group. Stop the other one, or give this process an identity of its own. Until 2026-11 this was \
         E0704."
        }
        Code::Usage => "'sealcast help COMMAND' shows what a command takes, with examples.",
        Code::UnknownCommand => "'sealcast help' lists all commands.",
        Code::BadValue => "The message says what it should look like.",
        Code::Missing => "The message names the file, the hint the command that makes it.",
        Code::Exists => {
            "Nothing is overwritten unasked. Choose another name, or say --force: what the file held is then lost."
        }
        Code::Exposed => {
            "Secrets must be readable by their owner only. Type the chmod of the hint; if others may have read it, make a new one."
        }
        Code::Syntax => "The message names file, line and column.",
        Code::Content => "It reads well, but what it says does not fit together. The message says what.",
        Code::NoIdentity => {
            "Sealed groups need to know who you are: 'sealcast init NAME' makes an authority and an identity, \
         'sealcast join FILE' takes an invite; --id or a context chooses among several."
        }
        Code::NoUrl => {
            "Where to? Say --url, set SEALCAST_URL, select a context ('sealcast ctx select NAME'), or set LCM_DEFAULT_URL."
        }
        Code::BadUrl => {
            "A URL looks like udpm://239.255.76.67:7667?ttl=0&keys=contributory; the message says which part is not understood."
        }
        Code::BadPair => {
            "A key scheme needs guarantees that this way of travelling does not give; README.md has the table of pairs."
        }
        Code::NoAuthority => {
            "The signing key of the group's authority is not on this machine. Run the command where 'sealcast ca ls' shows it."
        }
        Code::GroupExists => {
            "A group of this name has a history at the relay. 'sealcast group join' comes into it; another name in group= makes another group."
        }
        Code::AlreadyMember => "Nothing is left to do: 'sealcast group members' lists it.",
        Code::NoRoute => "Multicast needs a route even for one machine. 'sealcast doctor' says which line adds it.",
        Code::TimedOut => {
            "Is the other side running, with the same URL and group? 'sealcast doctor' checks the network in between."
        }
        Code::NotReady => {
            "The group is still forming: wait a moment; \"sealcast group show\" tells the state. Brokers: they have no key yet, or their newest \
         block is too old by the clock of this machine (date -u); \"sealcast brokers status\" tells which."
        }
        Code::Address => {
            "Another program listens there, or it is not an address of this machine. 'ss -ltnp' shows who listens."
        }
        Code::Nobody => {
            "The message was sealed and sent, and there was no other member to open it. Start the others first, or say --alone."
        }
        Code::GroupFull => {
            "64 members without a key distribution centre, 256 with keys=center&order=total, 1,024 with keys=center&order=best-effort. It lets somebody in once another one has left."
        }
        Code::NoPackage => {
            "A device is let in by a key package, which it leaves at the relay, or tells members. Start it once: 'sealcast group join'."
        }
        Code::Denied => {
            "'sealcast id show' lists what it grants; the authority grants more with 'sealcast invite --pub P --sub P'."
        }
        Code::DeniedPublish => {
            "The certificate has no pub right that matches the topic. Brokers: a rule of the policy asks for attributes that you do not have; \
         \"sealcast policy why --topic TOPIC --publish\" shows which."
        }
        Code::DeniedSubscribe => "The certificate has no sub right that covers any of the pattern.",
        Code::DeniedEvict => "Only the authority, or a certificate with the evict right, evicts.",
        Code::DeniedPolicy => {
            "A rule asks for attributes that are not there, or have other values. 'sealcast policy why' shows each part of each rule."
        }
        Code::Signature => "What was signed has been changed, or was signed by somebody else.",
        Code::Decrypt => "It was sealed for somebody else, or has been changed.",
        Code::Authority => "It was issued by another authority, or may not be used in this way.",
        Code::Login => {
            "An MQTT broker refuses the user or the password: user= and password-file= of the URL, or SEALCAST_RELAY_PASSWORD, say which."
        }
        Code::Excluded => "It was evicted or revoked. The authority can issue a new one: 'sealcast invite'.",
        Code::CertificateExpired => {
            "It has expired or is not yet valid. Check the clock ('sealcast doctor'), then have it renewed by the authority."
        }
        Code::InviteExpired => "Ask for a new one: 'sealcast invite --for KEY'.",
        Code::PackageExpired => {
            "Key packages are good for 90 days. The device makes new ones when it runs: 'sealcast group join'."
        }
        Code::Equivocation => {
            "Two contradicting signed statements were seen. They are kept as evidence; the message says where."
        }
        Code::NoQuorum => {
            "Of 3f+1 brokers 2f+1 must run, and f+1 must say the same. 'sealcast brokers status' shows which ones do."
        }
        Code::RolledBack => {
            "They are behind what this client has seen: restored from an old copy, or another cluster under the same keys."
        }
        Code::InDoubt => {
            "The group changed while it published: others may have got the message, or not. Ask them, or publish it again once \
         \"sealcast group show\" lists them."
        }
        Code::NotPrimary => {
            "Only a part of the group with most of the last members orders, so that there are never two orders. Who was cut off goes on \
         once most are back. Who crashed counts as gone, also after a new start: then type 'sealcast group primary --force' on one \
         machine that is left."
        }
        _ => "This program knows nothing more of it.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_advice() {
        for code in Code::ALL {
            assert!(!advice(*code).contains("knows nothing more"), "{code}");
        }
    }
}
