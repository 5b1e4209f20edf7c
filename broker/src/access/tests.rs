use proptest::prelude::*;
use sealcast_crypto::identity::Attribute;
use sealcast_wire::limits;

use super::*;
use crate::expression::Location;

fn access(text: &str) -> Access {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn attributes(list: &[(&str, &str, &str)]) -> Vec<Attribute> {
    list.iter().map(|(i, k, v)| Attribute::new(i, k, v).expect("an attribute")).collect()
}

fn known() -> Vocabulary {
    let names = [("exchange", "desk"), ("exchange", "clearance"), ("hospitalA", "role"), ("hospitalB", "role")];
    names.iter().map(|(i, k)| Name::new(i, k).expect("a name")).collect()
}

#[test]
fn conditions_are_judged_as_they_read() {
    let trader = attributes(&[("exchange", "desk", "fx"), ("exchange", "clearance", "3")]);
    for (text, expected) in [
        ("exchange:desk = fx and exchange:clearance >= 3", true),
        ("exchange:desk = fx and exchange:clearance > 3", false),
        ("exchange:desk = rates or exchange:clearance <= 3", true),
        ("exchange:desk in [rates, fx]", true),
        ("exchange:desk in [rates]", false),
        ("not exchange:desk = rates", true),
        ("exchange:desk != rates", true),
        ("exchange:desk != fx", false),
        ("exchange:clearance < 3", false),
        ("not (exchange:desk = fx or exchange:clearance = 9)", false),
        ("exchange:desk = fx or exchange:desk = x and exchange:desk = y", true),
        ("(exchange:desk = fx or exchange:desk = x) and exchange:desk = y", false),
    ] {
        assert_eq!(access(text).allows(&trader), expected, "{text}");
    }
}

#[test]
fn without_the_attribute_every_comparison_is_false() {
    for test in ["= fx", "!= fx", "< 9", ">= 0", "in [fx, rates]"] {
        let one = access(&format!("exchange:desk {test}"));
        assert!(!one.allows(&[]), "{test}");
        assert!(access(&format!("not exchange:desk {test}")).allows(&[]), "{test}");
    }
}

#[test]
fn numbers_have_one_text_and_other_values_do_not_compare() {
    for (value, expected) in [("3", true), ("03", false), ("+3", false), ("3.0", false), ("", false), ("-9", false)] {
        let held: Vec<_> = Attribute::new("e", "n", value).into_iter().collect();
        assert_eq!(access("e:n >= 3").allows(&held), expected, "{value}");
    }
    assert!(access("e:n >= -9").allows(&attributes(&[("e", "n", "-8")])));
    let error = "e:n >= high".parse::<Access>().expect_err("no number");
    assert_eq!((error.location, error.expected.as_str()), (Location { line: 1, column: 8 }, "a whole number"));
    assert!("e:n < 1000000000000000000".parse::<Access>().is_err(), "nineteen digits");
}

#[test]
fn of_several_values_some_one_counts() {
    let both = attributes(&[("h", "role", "nurse"), ("h", "role", "doctor")]);
    assert!(access("h:role = nurse and h:role = doctor").allows(&both));
    assert!(!access("h:role != nurse").allows(&both), "one of them is");
}

#[test]
fn rule_e3_the_issuer_is_part_of_the_name() {
    let a = attributes(&[("hospitalA", "role", "doctor")]);
    assert!(access("hospitalA:role = doctor").allows(&a));
    assert!(!access("hospitalB:role = doctor").allows(&a));
    let error = "role = doctor".parse::<Access>().expect_err("no issuer");
    assert_eq!(
        error.to_string(),
        "1:1: expected an attribute with its issuer (issuer:key), found `role` (write whose attribute it is, for example exchange:role)"
    );
    let error = Access::parse_known("exchange:desk = fx and rol = x", &known()).expect_err("no issuer");
    assert_eq!(error.hint.as_deref(), Some("did you mean hospitalA:role?"));
}

#[test]
fn errors_say_where_and_what_and_what_may_be_meant() {
    for (text, expected) in [
        ("", "1:1: expected an attribute (issuer:key), `not` or `(`, found the end of the text"),
        ("a:b", "1:4: expected a comparison (=, !=, <, <=, >, >= or in), found the end of the text"),
        ("a:b = c d", "1:9: expected `and`, `or` or the end, found `d`"),
        ("a:b == c", "1:6: expected a value, found `=` (equality is a single `=`)"),
        (
            "a:b = c\n  AND a:d = e",
            "2:3: expected `and`, `or` or the end, found `AND` (keywords are written in lower case: `and`)",
        ),
        ("(a:b = c", "1:9: expected `and`, `or` or `)`, found the end of the text"),
        ("a:b in c", "1:8: expected a list, as [nurse, doctor], found `c`"),
        ("a:b in [c d]", "1:11: expected `,` or `]`, found `d`"),
        ("a:b = in", "1:7: expected a value, found `in` (in quotes \"in\" is a name or value)"),
        ("a:b = \"c", "1:7: expected a closing `\"`, found the end of the text"),
        ("a:b = \"\"", "1:7: expected 1 to 64 bytes, found 0 bytes"),
        ("é:b = ;", "1:7: expected a word, found `;` (put other characters into double quotes)"),
    ] {
        assert_eq!(text.parse::<Access>().expect_err(text).to_string(), expected);
    }
    let error = Access::parse_known("exchange:desk = fx or exchange:clearence > 2", &known()).expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "1:23: expected a known attribute, found `exchange:clearence` (did you mean exchange:clearance?)"
    );
}

#[test]
fn all_unknown_attributes_are_named_each_where_it_first_stands() {
    let text = "hospitalA:rol = x or exchange:dsk = fx\n or exchange:dsk = y and exchange:desk = z or a:b = c";
    let errors = Access::parse_all(text, &known()).expect_err("three are unknown");
    let said: Vec<String> = errors.iter().map(|e| format!("{} {}", e.location, e.found)).collect();
    assert_eq!(said, ["1:1 `hospitalA:rol`", "1:22 `exchange:dsk`", "2:47 `a:b`"]);
}

#[test]
fn size_and_depth_have_limits() {
    let many = vec!["a:b = c"; limits::EXPRESSION_NODES_MAX].join(" or ");
    assert!(many.parse::<Access>().is_err(), "the connective is one more");
    let many = vec!["a:b = c"; limits::EXPRESSION_NODES_MAX - 1].join(" or ");
    assert_eq!(access(&many).nodes(), limits::EXPRESSION_NODES_MAX);
    let nested = |n| format!("{}a:b = c", "not ".repeat(n));
    assert!(nested(limits::EXPRESSION_DEPTH_MAX - 1).parse::<Access>().is_ok());
    assert!(nested(limits::EXPRESSION_DEPTH_MAX).parse::<Access>().is_err());
    assert!("(".repeat(8000).parse::<Access>().is_err());
    let deep: Vec<u8> = [1].into_iter().chain(vec![3; 8000]).collect();
    assert!(Access::from_bytes(&deep).is_err());
    let values: Vec<String> = (0..=limits::EXPRESSION_LIST_MAX).map(|n| n.to_string()).collect();
    assert!(format!("a:b in [{}]", values.join(", ")).parse::<Access>().is_err());
}

#[test]
fn a_verdict_explains_itself_line_by_line() {
    let rule = access("exchange:desk = fx and (exchange:clearance >= 3 or not hospitalA:role = nurse) and e:n > 1");
    let held =
        attributes(&[("exchange", "desk", "fx"), ("exchange", "clearance", "2"), ("hospitalA", "role", "nurse")]);
    let expected = "\
no  all of
yes   exchange:desk = fx
no    any of
no      exchange:clearance >= 3   (it is 2)
no      not
yes       hospitalA:role = nurse
no    e:n > 1   (no such attribute)";
    assert_eq!(rule.why(&held).to_string(), expected);
    let held = attributes(&[("e", "n", "many")]);
    assert_eq!(access("e:n > 1").why(&held).to_string(), "no  e:n > 1   (it is no number: many)");
}

#[test]
fn lint_finds_what_was_hardly_meant() {
    let said = |text: &str| lint(&access(text), &known()).iter().map(ToString::to_string).collect::<Vec<_>>();
    for (text, expected) in [
        ("exchange:desk = fx and exchange:clearance >= 3", vec![]),
        (
            "exchange:desk = fx and exchange:desk != fx",
            vec!["nobody meets 'exchange:desk = fx and exchange:desk != fx'"],
        ),
        (
            "exchange:desk = fx and exchange:desk = rates",
            vec!["only who holds two values of the attribute meets 'exchange:desk = fx' and 'exchange:desk = rates'"],
        ),
        (
            "exchange:desk = fx or exchange:desk in [fx, rates]",
            vec!["'exchange:desk = fx' adds nobody to 'exchange:desk in [fx, rates]'"],
        ),
        (
            "exchange:clearance >= 5 and exchange:clearance >= 3",
            vec!["'exchange:clearance >= 3' excludes nobody after 'exchange:clearance >= 5'"],
        ),
        (
            "exchange:desk = fx or not exchange:desk = fx",
            vec![
                "everybody meets 'exchange:desk = fx or not exchange:desk = fx'",
                "'not exchange:desk = fx' is also true of those without the attribute; `!=` is not",
            ],
        ),
        (
            "exchange:desk = fx or (exchange:desk = fx and exchange:clearance > 1)",
            vec!["'exchange:desk = fx and exchange:clearance > 1' adds nobody to 'exchange:desk = fx'"],
        ),
        ("exchnage:desk = fx", vec!["no issuer is called exchnage; did you mean exchange:desk?"]),
        ("exchange:dsk = fx", vec!["nobody gives exchange:dsk; did you mean exchange:desk?"]),
    ] {
        assert_eq!(said(text), expected, "{text}");
    }
}

fn comparison() -> impl Strategy<Value = Comparison> {
    let name = (prop::sample::select(vec!["a", "b"]), prop::sample::select(vec!["x", "in", "the key"]));
    let value = || prop::sample::select(vec!["1", "2", "3", "or", "two words", "q\"\\"]).prop_map(str::to_owned);
    let test = prop_oneof![
        value().prop_map(Test::Equal),
        value().prop_map(Test::NotEqual),
        (0_i64..4).prop_map(Test::Below),
        (0_i64..4).prop_map(Test::AtMost),
        (0_i64..4).prop_map(Test::Above),
        (-1_i64..4).prop_map(Test::AtLeast),
        prop::collection::btree_set(value(), 1..4).prop_map(Test::In),
    ];
    (name, test).prop_map(|((i, k), test)| Comparison { name: Name::new(i, k).expect("a name"), test })
}

fn tree() -> impl Strategy<Value = Access> {
    comparison().prop_map(Access::Is).prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(Access::all),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Access::any),
            inner.prop_map(|t| Access::Not(Box::new(t))),
        ]
    })
}

fn held() -> impl Strategy<Value = Vec<Attribute>> {
    let one = (
        prop::sample::select(vec!["a", "b"]),
        prop::sample::select(vec!["x", "in", "the key"]),
        prop::sample::select(vec!["1", "2", "3", "or", "two words"]),
    );
    prop::collection::vec(one, 0..5).prop_map(|list| attributes(&list))
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(access in tree()) {
        prop_assert!(access.is_well_formed());
        prop_assert_eq!(access.to_string().parse::<Access>().expect("its own text"), access);
    }

    #[test]
    fn s9_what_is_encoded_is_decoded_and_has_one_encoding(a in tree(), b in tree()) {
        prop_assert_eq!(Access::from_bytes(&a.to_bytes()), Ok(a.clone()));
        prop_assert_eq!(a == b, a.to_bytes() == b.to_bytes());
    }

    #[test]
    fn changed_bytes_are_refused_or_another_condition(access in tree(), at in any::<prop::sample::Index>(), to: u8) {
        let mut bytes = access.to_bytes();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        if let Ok(other) = Access::from_bytes(&bytes) {
            prop_assert_ne!(&other, &access);
            prop_assert_eq!(other.to_bytes(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(0_u8..9, 0..60)) {
        if let Ok(access) = Access::from_bytes(&[&[1], &bytes[..]].concat()) {
            prop_assert_eq!(&access.to_bytes()[1..], bytes);
        }
    }

    #[test]
    fn any_text_is_read_without_harm(text in "([ab]:|x |= |!=|>|[0-9]|and |or |not |in |\\[|\\]|,|\\(|\\)|\"|\\\\|\\PC|\n){0,40}") {
        match text.parse::<Access>() {
            Ok(access) => prop_assert_eq!(access.to_string().parse::<Access>(), Ok(access)),
            Err(error) => prop_assert!(error.location.line >= 1 && error.location.column >= 1),
        }
    }

    #[test]
    fn why_and_verdict_agree(access in tree(), held in held()) {
        prop_assert_eq!(access.why(&held).holds, access.allows(&held));
    }

    #[test]
    fn findings_are_certain(access in tree(), held in held()) {
        for finding in lint(&access, &Vocabulary::default()) {
            let allows = |text: &String| text.parse::<Access>().expect("a finding quotes conditions").allows(&held);
            match &finding {
                Finding::AlwaysFalse { part } => prop_assert!(!allows(part), "{}", finding),
                Finding::AlwaysTrue { part } => prop_assert!(allows(part), "{}", finding),
                Finding::Shadowed { part, by } => prop_assert!(!allows(part) || allows(by), "{}", finding),
                Finding::Redundant { part, given } => prop_assert!(!allows(given) || allows(part), "{}", finding),
                _ => {}
            }
        }
    }
}
