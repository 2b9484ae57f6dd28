# repository SOURCE FOLDER: a Git repository with the source tree as it is now, committed or not, as its branch main.
repository() {
	git init -q -b main "$2"
	tar -C "$1" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$2" -xf -
	git -C "$2" add -A
	git -C "$2" -c user.name=test -c user.email=test@localhost commit -q -m 'as it is now'
}
