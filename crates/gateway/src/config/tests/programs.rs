//! Programs that are not there.

use super::*;

/// What is wrong with a program that keeps nothing from being served.
fn warnings(stdio: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let plan = read(&format!("[[endpoint]]\nstdio = {{ {stdio} }}\n"), variables, &[]);
    plan.expect("a plan").warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_program_is_looked_for_where_it_will_be() {
    for (stdio, path) in [
        (r#"command = "here""#, None),
        (r#"command = "here""#, Some("/opt:/usr/bin")),
        (r#"command = "/usr/bin/here""#, Some("")),
        (r#"command = "there", env = { PATH = "/folder/bin" }"#, Some("/usr/bin")),
        (r#"command = "there", env = { PATH = "env:OTHER" }"#, None),
        // From the folder in which it is started.
        (r#"command = "bin/there", folder = "/folder""#, None),
        (r#"command = "./bin/there", folder = "/folder""#, None),
        (r#"command = "there", folder = "/folder", env = { PATH = "bin" }"#, None),
    ] {
        let mut variables = vec![("OTHER", "/folder/bin")];
        variables.extend(path.map(|path| ("PATH", path)));
        assert_eq!(warnings(stdio, &variables), Vec::<String>::new(), "{stdio}");
    }
}

#[test]
fn a_program_that_is_not_there_is_told() {
    let name = "its path, or a PATH that leads to it, in `stdio.env` or where the gateway is started";
    let file = "a path of a program that may be run (chmod +x)";
    for (stdio, what, remedy) in [
        (r#"command = "there""#, r#"no program "there" is in its PATH"#, name),
        (r#"command = "here", env = { PATH = "/opt" }"#, r#"no program "here" is in its PATH"#, name),
        (r#"command = "./here""#, "./here is no file that can be run", file),
        (r#"command = "bin/there""#, "bin/there is no file that can be run", file),
        (r#"command = "/usr/bin/there""#, "/usr/bin/there is no file that can be run", file),
    ] {
        let told = format!("f.toml:2:21: endpoint[0].stdio.command: {what}\n  try: {remedy}");
        assert_eq!(warnings(stdio, &[("PATH", "/usr/bin")]), [told], "{stdio}");
    }
}

#[test]
fn variables_that_a_program_cannot_receive_are_told() {
    let there = r#"command = "/usr/bin/here""#;
    let inherit = |names: &str| format!("{there}, inherit_env = [{names}]");
    let variables = [("SET", "s")];
    assert_eq!(warnings(&inherit(r#""SET""#), &variables), Vec::<String>::new());
    let told = "f.toml:2:60: endpoint[0].stdio.inherit_env[1]: the variable ABSENT is not set, so the program does not receive it\n  \
                try: the variable where the gateway is started, or a value in `env`";
    assert_eq!(warnings(&inherit(r#""SET", "ABSENT""#), &variables), [told]);
    for (stdio, fault) in [
        (
            inherit(r#""A=B""#),
            r#"f.toml:2:53: endpoint[0].stdio.inherit_env[0]: "A=B" is no name of a variable"#,
        ),
        (inherit(r#""""#), r#"f.toml:2:53: endpoint[0].stdio.inherit_env[0]: "" is no name of a variable"#),
    ] {
        check(&format!("[[endpoint]]\nstdio = {{ {stdio} }}\n"), &[fault]);
    }
    let zero = format!("[[endpoint]]\nstdio = {{ {there}, idle = \"0s\" }}\n");
    let faults = read(&zero, &[], &[]).expect_err("a fault");
    assert!(format!("{faults:?}").contains("stdio.idle"), "{faults:?}");
}
