//! Names that nothing proves, and handshakes that carriers see.

use sealcast_wire::Change;

use super::form;
use super::net::Net;
use crate::mls::certificates::CredentialKind;
use crate::mls::engine::Handshake;
use crate::{Command, Exclusion};

fn formed(members: usize) -> Net {
    let mut net = Net::new(members + 1, 7);
    net.credentials = CredentialKind::Basic;
    form(net, members)
}

#[test]
fn members_call_themselves_as_they_like_and_live_as_others_do() {
    let mut net = formed(4);
    let mut names: Vec<String> =
        net.nodes[0].views.last().unwrap().view.members.iter().map(|it| it.name.to_string()).collect();
    names.sort();
    assert_eq!(names, ["m0", "m1", "m2", "m3"]);
    net.command(1, Command::Rotate);
    net.crash(2);
    net.run(1_000);
    net.start(2);
    net.run(3_000);
    net.assert_together(&[0, 1, 2, 3]);
    // A device is let in while it waits.
    net.start_as(4, |config| config.joins = false);
    net.run(2_000);
    let cert = net.cert(4);
    net.command(0, Command::Admit { cert });
    net.run(3_000);
    net.assert_together(&[0, 1, 2, 3, 4]);
    net.command(3, Command::Leave);
    net.run(10_000);
    net.assert_together(&[0, 1, 2, 4]);
    let cert = net.cert(4);
    net.command(0, Command::Evict { cert, reason: String::new() });
    net.run(5_000);
    net.assert_together(&[0, 1, 2]);
    assert!(matches!(net.nodes[4].excluded, Some(Exclusion::Evicted { .. })));
    assert_eq!(net.nodes[0].views.last().unwrap().view.change, Change::Evicted);
    // No statement can name it: nothing keeps a name out.
    net.start(4);
    net.run(10_000);
    net.assert_together(&[0, 1, 2, 4]);
}

#[test]
fn no_name_comes_into_a_group_of_certificates_and_no_certificate_into_one_of_names() {
    for kind in [CredentialKind::X509, CredentialKind::Basic] {
        let mut net = super::formed(3, 8);
        if kind == CredentialKind::Basic {
            net = formed(3);
        }
        let other = if kind == CredentialKind::X509 { CredentialKind::Basic } else { CredentialKind::X509 };
        net.start_as(3, |config| config.credentials = other);
        net.run(10_000);
        net.assert_together(&[0, 1, 2]);
        assert!(net.nodes[3].views.is_empty());
    }
}

#[test]
fn rule_d8_handshakes_that_engines_send_in_clear_travel_under_the_bootstrap_key() {
    let mut net = Net::new(4, 9);
    for node in 0..4 {
        net.start_as(node, |config| {
            config.founds = node == 0;
            config.handshake = Handshake::Public;
        });
        net.run(1_000);
    }
    net.run(3_000);
    net.assert_together(&[0, 1, 2, 3]);
    net.command(2, Command::Rotate);
    net.command(3, Command::Leave);
    net.run(10_000);
    net.assert_together(&[0, 1, 2]);
    // Of the commits' leaves, which engines leave in clear there, nothing is to be seen in what is ordered.
    let certificate = net.nodes[2].identity.certificate().der.clone();
    let part = &certificate[certificate.len() / 2..][..16];
    assert!(net.log.iter().all(|(_, bytes)| !bytes.windows(16).any(|it| it == part)));
}
