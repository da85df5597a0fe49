SELECT {jobs.*} FROM jobs WHERE id = $1
