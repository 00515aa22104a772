use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn headers(of: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    of.iter().map(pair).collect()
}

fn parent(text: &str) -> Option<Context> {
    Context::of(&headers(&[("traceparent", text)]))
}

fn state_of(states: &[&str]) -> Option<String> {
    let parent = format!("00-{TRACE}-{SPAN}-01");
    let mut all = vec![("traceparent", parent.as_str())];
    all.extend(states.iter().map(|state| ("tracestate", *state)));
    let state = Context::of(&headers(&all)).unwrap().state;
    state.map(|state| state.to_str().unwrap().to_owned())
}

/// The cases of the recommendation's own test suite and its text.
#[test]
fn a_traceparent_is_taken_or_not_as_the_recommendation_says() {
    for (text, sampled) in [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some(true)),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", Some(false)),
        // Flags that are not known say nothing.
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff", Some(true)),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fe", Some(false)),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02", Some(false)),
        // Later versions: what is known of them is read.
        ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some(true)),
        ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-is", Some(true)),
        ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what-the-future-is", None),
        ("fe-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-", Some(true)),
        // Version 00 has nothing after its flags; ff is no version.
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what", None),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-", None),
        ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
        // Digits that are none, and upper case.
        (".0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
        ("0.-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
        ("00-.af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-.7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-.0", None),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0.", None),
        ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-B7AD6B7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0A", None),
        // Zeros.
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None),
        // Lengths, and what is between.
        ("", None),
        ("0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
        ("000-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c1-b7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033311-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", None),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-011", None),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", None),
        ("00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01", None),
        (
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01,00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            None,
        ),
    ] {
        let context = parent(text);
        assert_eq!(context.as_ref().map(|context| context.sampled), sampled, "{text}");
        if let Some(context) = context {
            assert_eq!(super::text(&context.trace), TRACE);
            assert_eq!(context.parent, Some([0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]));
            assert_ne!(Some(context.span), context.parent, "the call has a span of its own");
        }
    }
}

#[test]
fn a_traceparent_that_is_there_twice_is_none() {
    let text = format!("00-{TRACE}-{SPAN}-01");
    let twice = headers(&[("traceparent", &text), ("traceparent", &text)]);
    assert_eq!(Context::of(&twice), None);
    assert_eq!(Context::of(&headers(&[("trace-parent", &text), ("tracestate", "a=1")])), None);
}

#[test]
fn a_tracestate_is_kept_whole_or_not_at_all() {
    let many = |count: usize| (0..count).map(|number| format!("k{number}=1")).collect::<Vec<_>>().join(",");
    let long = |key: usize, value: usize| format!("{}={}", "k".repeat(key), "v".repeat(value));
    let two = |tenant: usize, system: usize| format!("{}@{}=1", "t".repeat(tenant), "s".repeat(system));
    for (text, kept) in [
        ("foo=1,bar=2".to_owned(), true),
        ("foo=1 \t , \t bar=2, \t baz=3".to_owned(), true),
        ("foo=1,,bar=2,".to_owned(), true),
        // Twice the same key: left as it is, says the test suite.
        ("foo=1,foo=2".to_owned(), true),
        ("0foo=1".to_owned(), false),
        ("0t@foo=1".to_owned(), true),
        ("t@0foo=1".to_owned(), false),
        ("foo@=1,bar=2".to_owned(), false),
        ("@foo=1,bar=2".to_owned(), false),
        ("foo@@bar=1".to_owned(), false),
        ("foo@bar@baz=1".to_owned(), false),
        ("foo =1".to_owned(), false),
        ("FOO=1".to_owned(), false),
        ("foo.bar=1".to_owned(), false),
        ("foo-_*/bar=4".to_owned(), true),
        ("foo".to_owned(), false),
        ("foo=".to_owned(), false),
        ("=1".to_owned(), false),
        ("foo=1=2".to_owned(), false),
        ("foo= 1 2".to_owned(), true),
        ("foo=1;bar".to_owned(), true),
        ("foo=\u{e9}".to_owned(), false),
        (String::new(), false),
        (" , ".to_owned(), false),
        (many(32), true),
        (many(33), false),
        (long(256, 256), true),
        (long(257, 1), false),
        (long(1, 257), false),
        (two(241, 14), true),
        (two(242, 1), false),
        (two(1, 15), false),
    ] {
        assert_eq!(state_of(&[&text]), kept.then_some(text.clone()), "{text}");
    }
}

#[test]
fn several_tracestates_are_one() {
    assert_eq!(state_of(&["foo=1", "bar=2", "baz=3"]).as_deref(), Some("foo=1,bar=2,baz=3"));
    assert_eq!(state_of(&["foo=1", ""]).as_deref(), Some("foo=1,"));
    assert_eq!(state_of(&["foo=1", "BAR=2"]), None);
    let without = headers(&[("traceparent", "00-0-0-0"), ("tracestate", "foo=1")]);
    assert_eq!(Context::of(&without), None, "it goes with its traceparent");
}

#[test]
fn what_is_put_is_what_is_read() {
    let first = parent(&format!("cc-{TRACE}-{SPAN}-01-more")).unwrap();
    let mut out = headers(&[("tracestate", "old=1"), ("baggage", "user=alice")]);
    first.put(&mut out);
    assert_eq!(out["traceparent"], format!("00-{TRACE}-{}-01", hex::encode(first.span)));
    assert_eq!(out.get("tracestate"), None, "of another trace");
    assert_eq!(out["baggage"], "user=alice");
    let next = Context::of(&out).unwrap();
    assert_eq!((next.trace, next.parent, next.sampled), (first.trace, Some(first.span), true));
    let root = Context::root(|_| false);
    root.put(&mut out);
    let next = Context::of(&out).unwrap();
    assert_eq!((next.trace, next.parent, next.sampled), (root.trace, Some(root.span), false));
}

#[test]
fn a_link_is_the_same_by_its_mark() {
    let link = Context::root(|_| true).link();
    assert_eq!(Link::of(&link.mark()), link);
}

#[test]
fn a_guests_request_says_what_caused_it() {
    let call = Context {
        state: Some(HeaderValue::from_static("a=1")),
        ..parent(&format!("00-{TRACE}-{SPAN}-01")).unwrap()
    };
    let child = call.child();
    let hosts = format!("00-{TRACE}-{}-01", hex::encode(child.span));
    let passed_on = format!("00-{TRACE}-{}-01", hex::encode(call.span));
    let other = format!("00-{}-{SPAN}-01", "1".repeat(32));
    for replaced in
        [&[][..], &[("traceparent", passed_on.as_str())], &[("traceparent", &other)], &[("traceparent", "x")]]
    {
        let mut out = headers(replaced);
        assert!(inject(&mut out, &call, &child), "{replaced:?}");
        assert_eq!(
            (&out["traceparent"], &out["tracestate"]),
            (&hosts.parse().unwrap(), &"a=1".parse().unwrap())
        );
    }
    let own = format!("00-{TRACE}-00f067aa0ba902b7-00");
    let mut out = headers(&[("traceparent", own.as_str()), ("tracestate", "guest=1")]);
    assert!(!inject(&mut out, &call, &child));
    assert_eq!(
        (&out["traceparent"], &out["tracestate"]),
        (&own.parse().unwrap(), &"guest=1".parse().unwrap())
    );
}
