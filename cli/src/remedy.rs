//! What helps after an error of the library, as it is typed here.

use sealcast::Remedy;

/// The next thing to type.
pub(crate) fn typed(remedy: &Remedy) -> String {
    let text = match remedy {
        Remedy::MakeIdentity => {
            "sealcast init NAME makes one; keys=plain in the URL sends everything in clear, readable by all"
        }
        Remedy::ListIdentities => "sealcast id ls",
        Remedy::ShowIdentity => "sealcast id show",
        Remedy::OwnIdentity => "stop the other one, or give this process its own identity: sealcast id new NAME",
        Remedy::LeaveFirst => "sealcast group leave ends it; or give this process an identity of its own",
        Remedy::ListContexts => "sealcast ctx ls",
        Remedy::AskForInvite { keys: Some(keys) } => {
            return format!(
                "the holder of the authority types: sealcast invite --for {keys}; then here: sealcast join FILE"
            );
        }
        Remedy::AskForInvite { keys: None } => {
            "ask for a new one: the authority's holder types sealcast invite --for KEY"
        }
        Remedy::AskForRight { publish, topic } => {
            let right = if *publish { "--pub" } else { "--sub" };
            return format!("ask the group's authority for the right: sealcast invite --for … {right} '{topic}'");
        }
        Remedy::LearnRevocations => {
            "where the authority is: sealcast ca crl -o ward.crl; here: sealcast id learn ward.crl"
        }
        Remedy::CheckNetwork => {
            "sealcast doctor checks the network; are the others on the same URL, with the same authority?"
        }
        Remedy::ShowGroup => "sealcast group show",
        Remedy::MakeRoom => "another member leaves (sealcast group leave); keys=center&order=best-effort takes 1,024",
        Remedy::ListMembers => "sealcast group members",
        Remedy::ListPending => "sealcast group pending; a device that is off is named by its certificate's SHA-256",
        Remedy::JoinGroup => "sealcast group join comes into it; for another group, another group= in the URL",
        Remedy::StartDevice => "on that device: sealcast group join; it leaves at the relay what members need",
        Remedy::NameCertificate => "name the certificate instead: sealcast group members shows them",
        Remedy::StartAgain => "start again; a member may be flooding the group: sealcast group evict NAME",
        Remedy::PublishAgain => "sealcast group show; when the others are there again, ask them or publish it again",
        Remedy::WritePattern => "patterns are like ward3/+/pulse or ward3/#; --regex takes regular expressions",
        Remedy::Overwrite => "--force overwrites it",
        Remedy::MakeCluster => "sealcast brokers up -n 4 makes a cluster; else get the file from the brokers' operator",
        Remedy::ShowOrder => "sealcast brokers status",
        Remedy::ShowOrderAndPublishAgain => "sealcast brokers status shows brokers; then publish it again",
        Remedy::CheckBrokers => "sealcast brokers status; do the brokers of this cluster file run?",
        Remedy::CompareBrokers => "compare 'sealcast brokers status' with their operator",
        Remedy::AwaitKey => "sealcast brokers status; the key ceremony needs 2f+1 running brokers",
        Remedy::FindShares => {
            "sealcast brokers status shows who holds a share; a broker that lost its own needs its folder keys/ back"
        }
        Remedy::ForcePrimary => {
            "wait until most are back; if they crashed or are gone for good: sealcast group primary --force, on one that is left"
        }
        Remedy::CheckClock => {
            "is the clock of this machine right (date -u)? sealcast brokers status shows whether the brokers go on"
        }
        Remedy::AskIssuer => {
            "sealcast ca issue NAME --ca ISSUER --attr …, then --id NAME; the cluster file names the issuers"
        }
        Remedy::ChooseIdentity { issuers } => {
            return format!("their issuers are {}; --id NAME", issuers.join(", "));
        }
        Remedy::CheckIssuer => "sealcast id show; the cluster file names the issuers",
        Remedy::RegisterPrincipal { name } => {
            let name = name.as_deref().unwrap_or("NAME");
            return format!(
                "where the centre is: sealcast kdc register {name} --group GROUP -o FILE; here: sealcast join FILE"
            );
        }
        Remedy::Register => "sealcast brokers reg, with an identity of an issuer that the cluster file names",
        Remedy::RenewCertificate => {
            "sealcast id show; the authority's operator renews it: sealcast ca issue NAME --ca ISSUER --attr …"
        }
        Remedy::NewCertificate => "the issuer gives a new one: sealcast ca issue NAME --ca ISSUER --attr …",
        Remedy::NewKey => "a new key is a new client: sealcast id new NAME, and a certificate of an issuer for it",
        Remedy::ExplainPolicy => "sealcast policy why --topic TOPIC --publish",
        Remedy::EndSubscription => "sealcast sub --list shows yours, and 'sealcast sub --end PATTERN' ends one",
        Remedy::AddSignature => "sealcast brokers sign FILE adds a signature",
        Remedy::NothingLeft => "nothing is left to do; 'sealcast brokers status' shows who is suspended",
        Remedy::RestoreClient { client } => {
            let client = client.as_deref().unwrap_or("CLIENT");
            return format!(
                "it sealed what opens to nothing; administrators restore it: sealcast brokers restore {client}"
            );
        }
        Remedy::ReceiptWhenPublishing => "ask for receipts when publishing: sealcast pub … --receipt FILE",
        Remedy::ReceiptWhenReading => "ask for receipts when reading: sealcast read … --latest --receipt FILE",
        Remedy::AwaitExecution => "it is ordered, and binds wherever it is executed; sealcast brokers status",
        Remedy::ReadFromOldest => "sealcast read TOPIC begins at the oldest publication that they keep",
        Remedy::ShowEvidence => "sealcast brokers evidence shows the proofs that are kept; tell the brokers' operator",
        Remedy::LeaveRelay { proof } => {
            return format!(
                "sealcast relay evidence shows it; the group goes on at another relay, with its relay= in all URLs; to use this one all the same: rm {proof}"
            );
        }
        other => return format!("{other:?}"),
    };
    text.to_owned()
}
