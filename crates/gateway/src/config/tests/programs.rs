//! Warnings of programs that cannot be found.

use super::*;

/// Returns the warnings of a configuration without faults.
fn warnings(stdio: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let plan = read(&format!("[[endpoint]]\nstdio = {{ {stdio} }}\n"), variables, &[]);
    plan.expect("a plan").warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_program_is_looked_up_as_at_its_start() {
    for (stdio, path) in [
        (r#"command = "here""#, None),
        (r#"command = "here""#, Some("/opt:/usr/bin")),
        (r#"command = "/usr/bin/here""#, Some("")),
        (r#"command = "there", env = { PATH = "/folder/bin" }"#, Some("/usr/bin")),
        (r#"command = "there", env = { PATH = "env:OTHER" }"#, None),
        // From the working directory.
        (r#"command = "bin/there", cwd = "/folder""#, None),
        (r#"command = "./bin/there", cwd = "/folder""#, None),
        (r#"command = "there", cwd = "/folder", env = { PATH = "bin" }"#, None),
    ] {
        let mut variables = vec![("OTHER", "/folder/bin")];
        variables.extend(path.map(|path| ("PATH", path)));
        assert_eq!(warnings(stdio, &variables), Vec::<String>::new(), "{stdio}");
    }
}

#[test]
fn a_program_that_is_missing_is_a_warning() {
    let name = "the path of the program, or another PATH in `stdio.env` or for the gateway";
    let file = "the path of an executable file (chmod +x)";
    for (stdio, what, remedy) in [
        (r#"command = "there""#, r#"no program "there" is in the PATH of the program"#, name),
        (
            r#"command = "here", env = { PATH = "/opt" }"#,
            r#"no program "here" is in the PATH of the program"#,
            name,
        ),
        (r#"command = "./here""#, "./here is not an executable file", file),
        (r#"command = "bin/there""#, "bin/there is not an executable file", file),
        (r#"command = "/usr/bin/there""#, "/usr/bin/there is not an executable file", file),
    ] {
        let warning = format!("f.toml:2:21: endpoint[0].stdio.command: {what}\n  try: {remedy}");
        assert_eq!(warnings(stdio, &[("PATH", "/usr/bin")]), [warning], "{stdio}");
    }
}

#[test]
fn variables_that_a_program_cannot_inherit_are_a_warning() {
    let there = r#"command = "/usr/bin/here""#;
    let inherit = |names: &str| format!("{there}, inherit_env = [{names}]");
    let variables = [("SET", "s")];
    assert_eq!(warnings(&inherit(r#""SET""#), &variables), Vec::<String>::new());
    let warning = "f.toml:2:60: endpoint[0].stdio.inherit_env[1]: the environment variable ABSENT is not set, so the program does not inherit it\n  \
                try: the variable for the gateway, or a value in `env`";
    assert_eq!(warnings(&inherit(r#""SET", "ABSENT""#), &variables), [warning]);
    for (stdio, fault) in [
        (
            inherit(r#""A=B""#),
            r#"f.toml:2:53: endpoint[0].stdio.inherit_env[0]: "A=B" is not the name of a variable"#,
        ),
        (
            inherit(r#""""#),
            r#"f.toml:2:53: endpoint[0].stdio.inherit_env[0]: "" is not the name of a variable"#,
        ),
    ] {
        check(&format!("[[endpoint]]\nstdio = {{ {stdio} }}\n"), &[fault]);
    }
}
