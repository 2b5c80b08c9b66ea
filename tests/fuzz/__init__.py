"""Every reader of files from outside, given valid files that were damaged in many ways."""
