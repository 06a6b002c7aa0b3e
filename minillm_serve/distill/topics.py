"""What the prompts are about: three lists of short phrases, written for this purpose.

Every seventh phrase of a list is held out: no training prompt is about it.
"""

#: One of so many phrases is held out, the fourth of each seven.
EVERY, OFFSET = 7, 3

_SUBJECTS = """
the water cycle; photosynthesis; the Roman Empire; how bees make honey; plate tectonics; the moon
and the tides; volcanoes; the invention of the printing press; the human heart; vaccines; the Great
Wall of China; the Silk Road; rainforests; coral reefs; the history of chess; the Olympic Games;
black holes; the solar system; the speed of light; gravity; electricity; magnets; steam engines;
railways; bicycles; electric cars; sailing ships; lighthouses; bridges; skyscrapers; libraries;
museums; public parks; city gardens; farming; bread baking; cheese making; coffee; tea; chocolate;
olive oil; rice; soup; breakfast; healthy eating; sleep; regular exercise; running a marathon;
swimming; yoga; meditation; stress at work; time management; learning a new language; reading
books; writing a diary; public speaking; job interviews; working from home; teamwork; leadership;
starting a small business; saving money; household budgets; inflation; supply and demand;
international trade; taxes; insurance; banks; online shopping; privacy on the internet; strong
passwords; social media; computer games; artificial intelligence; machine learning; neural
networks; robots; satellites; telescopes; microscopes; DNA; evolution; dinosaurs; whales; dolphins;
elephants; penguins; wolves; cats; dogs; horses; owls; butterflies; ants; spiders; trees in winter;
autumn leaves; deserts; rivers; lakes; mountains; glaciers; islands; the ocean; hurricanes;
thunderstorms; rainbows; climate change; renewable energy; solar panels; wind turbines; nuclear
power; recycling; plastic waste; clean water; air pollution; endangered animals; national parks;
camping; hiking; fishing; photography; painting; sculpture; classical music; jazz; the guitar; the
piano; dancing; theatre; cinema; poetry; fairy tales; science fiction; detective stories;
friendship; honesty; courage; patience; kindness; curiosity; creativity; happiness; forgiveness;
growing up; a school day; homework; mathematics; prime numbers; fractions; geometry; probability;
statistics; calculus; chemistry; atoms; acids and bases; the periodic table; metals; glass; paper;
cotton; clothes; shoes; houses; kitchens; markets; villages; big cities; airports; travelling by
train; a trip to the sea; a walk in the forest; a lost key; an old map; a talking cat; a dragon who
is afraid of fire; a robot that learns to paint; a detective in a small town; a letter from the
past; a storm at sea; a secret garden; two brothers; a brave mouse; a clever fox; a journey to
Mars; the last day of summer; a birthday party; a football match; a new neighbour; a broken clock;
a magic pencil; ancient Egypt; ancient Greece; the Middle Ages; the Renaissance; the Industrial
Revolution; the French Revolution; the first flight; the moon landing; the telephone; radio;
television; the internet; newspapers; democracy; elections; laws; human rights; the post office;
hospitals; nurses; teachers; firefighters; engineers; doctors; farmers; cooks; programmers;
architects; astronauts; explorers; inventors; fossils; earthquakes; caves; snow; the seasons;
clouds; soil; seeds; mushrooms; apples; the kidneys; the brain; memory; the five senses; teeth;
bones; muscles; the immune system; allergies; fever; first aid; a balanced diet; vitamins; sugar;
salt; drinking enough water; screen time; moving to a new city; choosing a career; asking for help;
saying no; making decisions; setting goals; good habits; procrastination
"""

_TASKS = """
adds two numbers; returns the larger of two numbers; checks whether a number is prime; computes the
factorial of a number; returns the n-th Fibonacci number; reverses a string; checks whether a
string is a palindrome; counts the vowels in a string; counts the words in a sentence; removes
duplicates from a list; sorts a list of numbers; finds the maximum of a list; finds the second
largest number in a list; computes the average of a list; computes the median of a list; merges two
sorted lists; flattens a nested list; checks whether two strings are anagrams; converts Celsius to
Fahrenheit; converts kilometres to miles; converts a decimal number to binary; computes the
greatest common divisor of two numbers; computes the least common multiple of two numbers; checks
whether a year is a leap year; computes the area of a circle; computes the area of a triangle;
computes the length of a hypotenuse; solves a quadratic equation; adds two matrices; multiplies two
matrices; transposes a matrix; searches a sorted list with binary search; sorts with bubble sort;
sorts with quicksort; sorts with merge sort; implements a stack; implements a queue; implements a
linked list; implements a binary tree; traverses a tree in order; counts how often each word occurs
in a text; finds the longest word in a sentence; capitalizes the first letter of each word; removes
the spaces from a string; replaces the vowels of a string by stars; reads a file line by line;
writes a list to a file; reads a CSV file; parses a JSON string; prints a multiplication table;
prints a triangle of stars; generates a random password; rolls two dice; plays rock, paper,
scissors; guesses a number; validates an email address; checks the strength of a password; computes
the sum of the digits of a number; checks whether a number is even; filters the even numbers of a
list; squares every number in a list; computes the power of a number; computes a square root
without a library; counts down from ten; prints the numbers from 1 to 100; solves FizzBuzz; swaps
two variables; rotates a list; splits a list into chunks; zips two lists into a dictionary; inverts
a dictionary; sorts a dictionary by value; finds the common elements of two lists; finds the
missing number in a list; computes the distance between two points; converts a Roman numeral to an
integer; encrypts a text with the Caesar cipher; counts the days between two dates; formats a date;
computes compound interest; computes the tax on a price; applies a discount to a price; models a
bank account; models a shopping cart; models a library of books; models a student with grades;
models a car; models a rectangle; keeps a list of contacts; keeps a to-do list; computes the body
mass index; converts seconds to hours and minutes; simulates tossing a coin; draws a histogram;
logs messages with a time; retries a call three times; caches the results of a call; measures how
long a call takes; downloads a web page; counts the lines of a file
"""

_THINGS = """
five fruits with colour and price; the planets of the solar system; European countries and their
capitals; the months of the year and their days; the days of the week; ten common animals; four
employees with name, age and job; three books with title, author and year; six cities with country
and population; programming languages and what they are used for; five vegetables with calories;
kitchen tools; musical instruments; sports and the number of players; common metals; chemical
elements with their symbols; units of length; units of weight; the primary colours; geometric
shapes and their sides; ocean names; continents; the longest rivers; the highest mountains; famous
scientists and their discoveries; famous painters; inventions with their years; breakfast dishes;
ingredients for pancakes; ingredients for a salad; steps to make tea; steps to bake bread; steps to
plant a tree; steps to change a tyre; steps to write an essay; steps to set up a computer; things
to pack for a trip; things to bring to the beach; tools for the garden; school subjects; office
supplies; household chores; a weekly meal plan; a weekly training plan; a daily schedule for a
student; a reading list; a shopping list; a packing list; a list of birthdays; three products with
price and stock; a small invoice; orders of an online shop; two users with name and email; a
configuration of a web server; settings of a game; a weather report for three days; temperatures of
a week; exam grades of five students; football results; a train timetable; flight connections;
opening hours of a shop; rooms of a house; parts of a car; parts of a computer; parts of a flower;
organs of the human body; bones of the hand; kinds of clouds; kinds of trees; kinds of bread; kinds
of cheese; kinds of energy; means of transport; file formats; keyboard shortcuts; git commands;
Linux commands; HTTP status codes; SQL keywords; data types; arithmetic operators; pros and cons of
electric cars; pros and cons of working from home; differences between cats and dogs; differences
between tea and coffee; advantages of regular exercise; advantages of public transport; safety
rules in a laboratory; rules of a library
"""


def _phrases(text: str) -> list[str]:
    return [" ".join(phrase.split()) for phrase in text.split(";")]


def _part(text: str, held_out: bool) -> tuple[str, ...]:
    phrases = enumerate(_phrases(text))
    return tuple(phrase for i, phrase in phrases if (i % EVERY == OFFSET) == held_out)


def subjects(held_out: bool) -> tuple[str, ...]:
    """What texts, explanations, stories and advice are about."""
    return _part(_SUBJECTS, held_out)


def tasks(held_out: bool) -> tuple[str, ...]:
    """What functions do: "Write a function that ..."."""
    return _part(_TASKS, held_out)


def things(held_out: bool) -> tuple[str, ...]:
    """What lists and tables are of."""
    return _part(_THINGS, held_out)
